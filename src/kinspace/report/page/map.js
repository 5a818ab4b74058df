(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("map-data").textContent);
  var canvas = document.getElementById("map"), stage = canvas.parentElement;
  var context = canvas.getContext("2d");
  var tip = document.getElementById("map-tip"), panel = document.getElementById("map-panel");
  var chooser = document.getElementById("map-class");
  var count = data.ids.length, sheet = null;
  var view = { scale: 1, x: 0, y: 0 }, hover = -1, chosen = -1, only = -1;
  var width = 0, height = 0, waiting = false;

  function color(group, alpha) {
    return "hsla(" + ((group * 222.492) % 360).toFixed(1) + ",65%,52%," + alpha + ")";
  }
  function base() { return 0.92 * Math.min(width, height); }
  function place(i) {
    var size = base() * view.scale;
    return {
      x: width / 2 + view.x + (data.x[i] / 10000 - 0.5) * size,
      y: height / 2 + view.y + (data.y[i] / 10000 - 0.5) * size
    };
  }
  function tile() {
    var room = 1.05 * base() / Math.sqrt(count) * Math.pow(view.scale, 0.75);
    return Math.max(sheet ? 9 : 5, Math.min(room, sheet ? 1.4 * data.side : 16));
  }
  function drawOne(i, size) {
    var p = place(i);
    if (p.x < -size || p.y < -size || p.x > width + size || p.y > height + size) { return; }
    if (sheet) {
      var sx = (i % data.columns) * data.side, sy = Math.floor(i / data.columns) * data.side;
      context.drawImage(sheet, sx, sy, data.side, data.side, p.x - size / 2, p.y - size / 2, size, size);
      context.lineWidth = size > 22 ? 2 : 1;
      context.strokeStyle = color(data.classes[i], size > 22 ? 0.95 : 0.7);
      context.strokeRect(p.x - size / 2, p.y - size / 2, size, size);
    } else {
      context.beginPath();
      context.arc(p.x, p.y, size / 2, 0, 7);
      context.fillStyle = color(data.classes[i], 0.85);
      context.fill();
    }
  }
  function ring(i, size) {
    var p = place(i);
    context.lineWidth = 3;
    context.strokeStyle = getComputedStyle(document.body).color;
    context.strokeRect(p.x - size / 2 - 3, p.y - size / 2 - 3, size + 6, size + 6);
  }
  function draw() {
    waiting = false;
    var ratio = window.devicePixelRatio || 1, size = tile(), i;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.globalAlpha = only < 0 ? 1 : 0.12;
    for (i = 0; i < count; i++) { if (data.classes[i] !== only) { drawOne(i, size); } }
    context.globalAlpha = 1;
    if (only >= 0) {
      for (i = 0; i < count; i++) { if (data.classes[i] === only) { drawOne(i, size * 1.15); } }
    }
    if (chosen >= 0) {
      var from = place(chosen);
      data.neighbors[chosen].forEach(function (j) {
        var to = place(j);
        context.beginPath(); context.moveTo(from.x, from.y); context.lineTo(to.x, to.y);
        context.lineWidth = 1.5; context.strokeStyle = getComputedStyle(document.body).color;
        context.stroke();
      });
      data.neighbors[chosen].forEach(function (j) { drawOne(j, size * 1.4); });
      drawOne(chosen, size * 1.8); ring(chosen, size * 1.8);
    }
    if (hover >= 0 && hover !== chosen) { drawOne(hover, size * 1.5); ring(hover, size * 1.5); }
    if (document.activeElement === canvas && canvas.matches(":focus-visible")) {
      context.strokeStyle = getComputedStyle(document.body).color; context.lineWidth = 1;
      context.beginPath();
      context.moveTo(width / 2 - 9, height / 2); context.lineTo(width / 2 + 9, height / 2);
      context.moveTo(width / 2, height / 2 - 9); context.lineTo(width / 2, height / 2 + 9);
      context.stroke();
    }
  }
  function redraw() { if (!waiting) { waiting = true; requestAnimationFrame(draw); } }
  function fit() {
    var ratio = window.devicePixelRatio || 1;
    width = canvas.clientWidth; height = canvas.clientHeight;
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    redraw();
  }
  function zoom(factor, x, y) {
    var next = Math.max(0.6, Math.min(40, view.scale * factor)), real = next / view.scale;
    view.x = x - width / 2 - (x - width / 2 - view.x) * real;
    view.y = y - height / 2 - (y - height / 2 - view.y) * real;
    view.scale = next;
    redraw();
  }
  function nearestTo(x, y, reach) {
    var best = -1, least = reach * reach;
    for (var i = 0; i < count; i++) {
      if (only >= 0 && data.classes[i] !== only) { continue; }
      var p = place(i), d = (p.x - x) * (p.x - x) + (p.y - y) * (p.y - y);
      if (d < least) { least = d; best = i; }
    }
    return best;
  }
  function picture(i, size) {
    var box = document.createElement("span");
    box.className = "tile";
    box.style.width = box.style.height = size + "px";
    if (sheet) {
      var times = size / data.side;
      box.style.backgroundImage = "url(" + data.sheet + ")";
      box.style.backgroundSize = sheet.width * times + "px auto";
      box.style.backgroundPosition = -(i % data.columns) * size + "px " +
        -Math.floor(i / data.columns) * size + "px";
    } else { box.style.background = color(data.classes[i], 1); }
    return box;
  }
  function name(i) { return data.names[data.classes[i]]; }
  function point(i, x, y) {
    if (i !== hover) {
      hover = i;
      tip.textContent = "";
      if (i >= 0) {
        if (sheet) { tip.appendChild(picture(i, 96)); }
        var title = document.createElement("b"); title.textContent = name(i);
        tip.appendChild(title); tip.appendChild(document.createElement("br"));
        tip.appendChild(document.createTextNode(data.ids[i]));
      }
      redraw();
    }
    tip.hidden = i < 0;
    if (i >= 0) {
      tip.style.left = Math.max(0, Math.min(x + 16, width - tip.offsetWidth - 4)) + "px";
      tip.style.top = Math.max(0, Math.min(y + 16, height - tip.offsetHeight - 4)) + "px";
    }
  }
  function choose(i) {
    chosen = i;
    panel.textContent = "";
    if (i < 0) { panel.appendChild(document.createTextNode(panel.dataset.empty)); redraw(); return; }
    var title = document.createElement("h3"); title.textContent = name(i);
    panel.appendChild(title);
    if (sheet) { panel.appendChild(picture(i, 128)); }
    var about = document.createElement("p"); about.textContent = data.ids[i];
    panel.appendChild(about);
    var list = document.createElement("ul"); list.className = "near";
    list.setAttribute("aria-label", "nearest pictures");
    data.neighbors[i].forEach(function (j, at) {
      var right = data.classes[j] === data.classes[i];
      var item = document.createElement("li"), go = document.createElement("button");
      go.type = "button";
      go.appendChild(picture(j, 44));
      var words = document.createElement("span"), mark = document.createElement("span");
      mark.className = right ? "yes" : "no";
      mark.textContent = (right ? "✓ " : "✗ ") + name(j);
      words.appendChild(mark); words.appendChild(document.createElement("br"));
      words.appendChild(document.createTextNode("similarity " + data.similarities[i][at].toFixed(3)));
      go.appendChild(words);
      go.addEventListener("click", function () { choose(j); });
      item.appendChild(go); list.appendChild(item);
    });
    panel.appendChild(list);
    redraw();
  }

  var pointers = new Map(), moved = 0, spread = 0;
  function at(event) {
    var box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }
  canvas.addEventListener("pointerdown", function (event) {
    pointers.set(event.pointerId, at(event)); moved = 0; spread = 0;
    canvas.setPointerCapture(event.pointerId); canvas.style.cursor = "grabbing";
  });
  canvas.addEventListener("pointermove", function (event) {
    var now = at(event), before = pointers.get(event.pointerId);
    if (!before) { point(nearestTo(now.x, now.y, Math.max(9, tile() * 0.75)), now.x, now.y); return; }
    pointers.set(event.pointerId, now);
    if (pointers.size === 1) {
      moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
      if (moved > 4) { view.x += now.x - before.x; view.y += now.y - before.y; point(-1); redraw(); }
    } else if (pointers.size === 2) {
      var two = Array.from(pointers.values());
      var apart = Math.hypot(two[0].x - two[1].x, two[0].y - two[1].y);
      if (spread) { zoom(apart / spread, (two[0].x + two[1].x) / 2, (two[0].y + two[1].y) / 2); }
      spread = apart; moved = 99;
    }
  });
  function lift(event) {
    var was = pointers.delete(event.pointerId);
    canvas.style.cursor = "grab"; spread = 0;
    if (was && event.type === "pointerup" && moved <= 4) {
      var now = at(event);
      choose(nearestTo(now.x, now.y, Math.max(12, tile() * 0.9)));
    }
  }
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", function () { if (!pointers.size) { point(-1); } });
  canvas.addEventListener("wheel", function (event) {
    if (!event.ctrlKey && document.activeElement !== canvas) { return; }
    event.preventDefault();
    var now = at(event);
    zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0016)), now.x, now.y);
  }, { passive: false });
  var moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
  canvas.addEventListener("keydown", function (event) {
    var by = moves[event.key];
    if (by) { view.x += by[0]; view.y += by[1]; redraw(); }
    else if (event.key === "+" || event.key === "=") { zoom(1.4, width / 2, height / 2); }
    else if (event.key === "-") { zoom(1 / 1.4, width / 2, height / 2); }
    else if (event.key === "0") { reset(); }
    else if (event.key === "Enter" || event.key === " ") { choose(nearestTo(width / 2, height / 2, 1e6)); }
    else if (event.key === "Escape") { choose(-1); }
    else { return; }
    event.preventDefault();
  });
  canvas.addEventListener("focus", redraw); canvas.addEventListener("blur", redraw);
  function reset() { view = { scale: 1, x: 0, y: 0 }; redraw(); }
  document.getElementById("map-in").addEventListener("click", function () { zoom(1.5, width / 2, height / 2); });
  document.getElementById("map-out").addEventListener("click", function () { zoom(1 / 1.5, width / 2, height / 2); });
  document.getElementById("map-reset").addEventListener("click", reset);
  data.names.forEach(function (title, number) {
    var option = document.createElement("option"); option.value = number; option.textContent = title;
    chooser.appendChild(option);
  });
  chooser.addEventListener("change", function () { only = Number(chooser.value); redraw(); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(fit).observe(canvas);
  window.kinspaceMap = { place: place, view: function () { return view; } };
  if (data.sheet) {
    var image = new Image();
    image.onload = function () { sheet = image; stage.dataset.ready = "yes"; fit(); };
    image.src = data.sheet;
  } else { stage.dataset.ready = "yes"; }
  fit();
})();
