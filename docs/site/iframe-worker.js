// The search of the site runs in a worker. A page opened from a disk may start none: there a hidden
// frame runs the worker's script instead. Over HTTP nothing changes.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = []; // messages from before the script is there
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.onload = () => {
        const script = frame.contentDocument.createElement("script");
        script.onload = () => this.start(frame.contentWindow);
        script.src = url;
        frame.contentDocument.head.append(script);
      };
      document.body.append(frame);
    }

    start(scope) {
      scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.postMessage = (data) => scope.dispatchEvent(new MessageEvent("message", { data }));
      this.waiting.forEach(this.postMessage);
    }

    postMessage(data) {
      this.waiting.push(data);
    }
  };
}
