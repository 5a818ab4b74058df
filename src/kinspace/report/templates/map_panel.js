// The map of the report: its tooltip, its class filter, and the panel with the nearest pictures.
(function () {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("map-data").textContent);
  const canvas = $("map"), stage = canvas.parentElement, tip = $("map-tip"), panel = $("map-panel");
  const image = data.sheet ? new Image() : null;
  let map = null, hovered = -1;

  function element(name, text) {
    const made = document.createElement(name);
    if (text !== undefined) { made.textContent = text; }
    return made;
  }
  const labeled = data.classes !== null;
  const className = (i) => labeled ? data.names[data.classes[i]] : data.ids[i];
  function picture(i, size) { // a tile of the sheet; without pictures the color of the class
    const box = element("span"), times = size / data.side;
    box.className = "tile";
    box.style.width = box.style.height = size + "px";
    if (!image) { box.style.background = map.color(i); return box; }
    box.style.backgroundImage = "url(" + data.sheet + ")";
    box.style.backgroundSize = image.naturalWidth * times + "px auto";
    box.style.backgroundPosition = -(i % data.columns) * size + "px " + -Math.floor(i / data.columns) * size + "px";
    return box;
  }
  function hover(i, x, y, width, height) {
    tip.hidden = i < 0;
    if (i >= 0 && i !== hovered) {
      tip.textContent = "";
      if (image) { tip.append(picture(i, 96)); }
      tip.append(element("b", className(i)));
      if (labeled) { tip.append(element("br"), data.ids[i]); }
    }
    hovered = i;
    if (i < 0) { return; }
    tip.style.left = Math.max(0, Math.min(x + 16, width - tip.offsetWidth - 4)) + "px";
    tip.style.top = Math.max(0, Math.min(y + 16, height - tip.offsetHeight - 4)) + "px";
  }
  function clear() {
    map.mark(-1, []);
    panel.textContent = panel.dataset.empty;
  }
  function choose(i) {
    map.mark(i, data.neighbors[i]);
    panel.textContent = "";
    panel.append(element("h3", className(i)));
    if (image) { panel.append(picture(i, 128)); }
    if (labeled) { panel.append(element("p", data.ids[i])); }
    const list = element("ul");
    list.className = "near";
    list.setAttribute("aria-label", "nearest pictures");
    data.neighbors[i].forEach(function (j, rank) {
      const same = labeled && data.classes[j] === data.classes[i];
      const item = element("li"), button = element("button"), words = element("span");
      const mark = element("span", (labeled ? (same ? "✓ " : "✗ ") : "") + className(j));
      if (labeled) { mark.className = same ? "yes" : "no"; }
      words.append(mark, element("br"), "similarity " + data.similarities[i][rank].toFixed(3));
      button.type = "button";
      button.append(picture(j, 44), words);
      button.addEventListener("click", () => choose(j));
      item.append(button);
      list.append(item);
    });
    panel.append(list);
  }
  function open() {
    const sheet = image && { image: image, columns: data.columns, side: data.side };
    map = embeddingMap(canvas, { x: data.x, y: data.y, labels: data.classes }, {
      sheet: sheet, hover: hover, choose: choose, clear: clear, name: labeled && ((label) => data.names[label])
    });
    $("map-in").addEventListener("click", () => map.zoom(1.5));
    $("map-out").addEventListener("click", () => map.zoom(1 / 1.5));
    $("map-reset").addEventListener("click", () => map.reset());
    const chooser = $("map-class");
    chooser.parentElement.hidden = !labeled;
    data.names.forEach(function (name, label) {
      const option = element("option", name);
      option.value = label;
      chooser.append(option);
    });
    chooser.addEventListener("change", function () {
      const label = Number(chooser.value);
      map.filter(label < 0 ? null : Uint8Array.from(data.classes, (one) => (one === label ? 1 : 0)));
    });
    function named() { // "#id=moth%203": the picture of this id
      const found = /^#id=(.+)$/.exec(location.hash), row = found ? data.ids.indexOf(decodeURIComponent(found[1])) : -1;
      if (row >= 0) { choose(row); $("map-section").scrollIntoView(); }
    }
    window.addEventListener("hashchange", named);
    named();
    window.kinspaceMap = map;
    stage.dataset.ready = "yes";
  }
  if (image) { image.onload = open; image.src = data.sheet; } else { open(); }
})();
