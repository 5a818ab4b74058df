// A map of points on a canvas, for the report and for the server.
//
// data:     x, y: positions from 0 to 10,000; labels: a class number for each point, or null
// options:  sheet: {image, columns, side}, a loaded picture with one tile per point, row after row:
//             all points are drawn as pictures
//           thumb(i): address of a point's picture: the points are dots, and become pictures where
//             few are in view. Without sheet and thumb all points are dots.
//           choose(i): a point was clicked; clear(), optional: a click beside all points, or Escape
//           hover(i, x, y, width, height): the pointer is on a point, or on none if i is -1
//           middle(i), optional: a key has moved this point to the middle
//           name(label), optional: the name of a class, which is written at its cluster; with thumb,
//             a picture of the class is there too
//
// Ten colors that stay apart in the common kinds of color blindness; classes that are near each
// other on the map have different ones.
//
// Dots are written pixel by pixel into one image, so that a frame of some ten thousand points takes
// a few milliseconds. Points are sorted into cells: a frame and a search read only those in view.
function embeddingMap(canvas, data, options) {
  "use strict";
  const count = data.x.length, context = canvas.getContext("2d");
  const sheet = options.sheet || null, pictured = Boolean(sheet || options.thumb);
  const TILES = 90, KEPT = 400, FAR = 60, CELLS = 64, REACH = 24;
  const LIGHT = ["0046ff", "ffb900", "e81700", "5db95d", "74178b", "ff74a2", "b9b9ff", "8b175d", "b974ff", "a2002e"];
  const DARK = ["00b9e8", "e88b00", "ffe874", "a274ff", "b94600", "b9e8b9", "46748b", "d1a25d", "a200ff", "a25d46"];
  const EXEMPLAR = 36, NAMED = 22, MANY = 3000; // side of a picture at a cluster, letters of a name, classes
  const FRAME = 8; // ms that drawing may take while the map moves; if it takes longer, points are left out
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let view = { scale: 1, x: 0, y: 0 }, width = 0, height = 0, ratio = 1;
  let hover = -1, chosen = -1, near = [], fits = null, waiting = false, image = null, pixels = null;
  let cost = 0, moving = false, rest = 0, inkNow = "", paper = "", visibleNow = 0, query = null;
  const visible = new Int32Array(TILES + 1);
  const pictures = new Map();

  // rows cell by cell; within a cell in a fixed random order, so that no class covers the others
  const order = new Uint32Array(count), starts = new Uint32Array(CELLS * CELLS + 1);
  const xs = new Float32Array(count), ys = new Float32Array(count), groups = new Uint32Array(count);
  (function sort() {
    const mixed = new Uint32Array(count);
    for (let i = 0; i < count; i++) { mixed[i] = i; }
    for (let i = count - 1, seed = 1; i > 0; i--) {
      seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
      const j = seed % (i + 1), kept = mixed[i];
      mixed[i] = mixed[j]; mixed[j] = kept;
    }
    const part = (value) => Math.min(CELLS - 1, Math.floor(value / 10000 * CELLS));
    const cell = (i) => part(data.y[i]) * CELLS + part(data.x[i]);
    for (let i = 0; i < count; i++) { starts[cell(i) + 1]++; }
    for (let c = 0; c < CELLS * CELLS; c++) { starts[c + 1] += starts[c]; }
    const next = starts.slice();
    mixed.forEach(function (i) {
      const at = next[cell(i)]++;
      order[at] = i; xs[at] = data.x[i] / 10000; ys[at] = data.y[i] / 10000;
      groups[at] = data.labels ? data.labels[i] : 0;
    });
  })();
  function within(left, top, right, bottom, visit) { // of the map, 0 .. 1; row after row of cells
    const first = (value) => Math.max(0, Math.floor(value * CELLS));
    const last = (value) => Math.min(CELLS - 1, Math.floor(value * CELLS));
    for (let r = first(top); r <= last(bottom); r++) {
      for (let c = first(left); c <= last(right); c++) { visit(starts[r * CELLS + c], starts[r * CELLS + c + 1]); }
    }
  }

  // the densest place of each class, the point nearest to it, and a color; largest class first
  const clusters = (function find() {
    const CELL = 10000 / 24, byLabel = new Map(), found = new Map();
    for (let i = 0; data.labels && i < count; i++) {
      const label = data.labels[i];
      if (!byLabel.has(label)) { byLabel.set(label, []); }
      byLabel.get(label).push(i);
    }
    Array.from(byLabel).sort((a, b) => b[1].length - a[1].length).forEach(function ([label, rows]) {
      const cells = new Map();
      let best = null;
      rows.forEach(function (i) {
        const key = Math.floor(data.x[i] / CELL) * 100 + Math.floor(data.y[i] / CELL);
        const cell = cells.get(key) || { n: 0, x: 0, y: 0 };
        cell.n++; cell.x += data.x[i]; cell.y += data.y[i];
        cells.set(key, cell);
        if (!best || cell.n > best.n) { best = cell; }
      });
      const x = best.x / best.n, y = best.y / best.n;
      let exemplar = rows[0], least = Infinity;
      rows.forEach(function (i) {
        const far = (data.x[i] - x) ** 2 + (data.y[i] - y) ** 2;
        if (far < least) { least = far; exemplar = i; }
      });
      found.set(label, { label: label, exemplar: exemplar, color: label % LIGHT.length });
    });
    if (found.size > MANY) { return found; }
    const placed = LIGHT.map(() => []);
    found.forEach(function (each) { // the color whose nearest class is farthest
      let most = -1;
      placed.forEach(function (others, color) {
        let near = Infinity;
        others.forEach(function (j) {
          near = Math.min(near, (data.x[j] - data.x[each.exemplar]) ** 2 + (data.y[j] - data.y[each.exemplar]) ** 2);
        });
        if (near > most) { most = near; each.color = color; }
      });
      placed[each.color].push(each.exemplar);
    });
    return found;
  })();
  function rgb(group) {
    const known = clusters.get(group), text = (dark.matches ? DARK : LIGHT)[known ? known.color : 0];
    return [0, 2, 4].map((at) => parseInt(text.slice(at, at + 2), 16));
  }
  const pack = (c, alpha) => ((alpha << 24) | (c[2] << 16) | (c[1] << 8) | c[0]) >>> 0;
  let strong = null, soft = null;
  function paint() {
    let most = 0;
    for (let n = 0; n < count; n++) { most = Math.max(most, groups[n]); }
    strong = new Uint32Array(most + 1); soft = new Uint32Array(most + 1);
    for (let group = 0; group <= most; group++) {
      const color = rgb(group);
      strong[group] = pack(color, 255); soft[group] = pack(color, 120);
    }
    const style = getComputedStyle(canvas);
    inkNow = style.color; paper = style.backgroundColor;
  }
  const css = (i) => "rgb(" + rgb(data.labels ? data.labels[i] : 0).join() + ")";

  function base() { return 0.94 * Math.min(width, height); }
  function place(i) { // of a point, or of {x, y} on the map
    const size = base() * view.scale, on = typeof i === "number" ? { x: data.x[i], y: data.y[i] } : i;
    return {
      x: width / 2 + view.x + (on.x / 10000 - 0.5) * size,
      y: height / 2 + view.y + (on.y / 10000 - 0.5) * size
    };
  }
  function disc(radius) {
    const full = [], edge = [], reach = Math.ceil(radius);
    for (let dy = -reach; dy <= reach; dy++) {
      for (let dx = -reach; dx <= reach; dx++) {
        const far = Math.hypot(dx, dy) - radius;
        if (far <= 0) { full.push(dy * canvas.width + dx); }
        else if (far < 0.75) { edge.push(dy * canvas.width + dx); }
      }
    }
    return { full: Int32Array.from(full), edge: Int32Array.from(edge), reach: reach };
  }
  function points(radius, gray, share) {
    const size = base() * view.scale * ratio, w = canvas.width, h = canvas.height;
    const left = w / 2 + view.x * ratio - size / 2, top = h / 2 + view.y * ratio - size / 2;
    const { full, edge, reach } = disc(radius);
    const faint = pack(dark.matches ? [70, 76, 84] : [205, 209, 214], 255);
    let inside = 0;
    within(-left / size, -top / size, (w - left) / size, (h - top) / size, function (start, end) {
      const stop = start + Math.ceil((end - start) * share);
      for (let n = start; n < stop; n++) {
        if (fits && !fits[order[n]] !== gray) { continue; }
        const x = Math.round(left + xs[n] * size), y = Math.round(top + ys[n] * size);
        if (x < reach || y < reach || x >= w - reach || y >= h - reach) { continue; }
        const at = y * w + x, color = gray ? faint : strong[groups[n]];
        for (let m = 0; m < full.length; m++) { pixels[at + full[m]] = color; }
        if (gray) { continue; }
        if (inside <= TILES) { visible[inside] = order[n]; inside++; }
        const pale = soft[groups[n]];
        for (let m = 0; m < edge.length; m++) { if (!pixels[at + edge[m]]) { pixels[at + edge[m]] = pale; } }
      }
    });
    return inside;
  }
  function source(i) { // the image of a point and where its picture is in it; null until it is loaded
    if (sheet) {
      const side = sheet.side;
      return { image: sheet.image, x: (i % sheet.columns) * side, y: Math.floor(i / sheet.columns) * side, width: side, height: side };
    }
    let image = pictures.get(i);
    if (!image) {
      image = new Image();
      image.onload = redraw;
      image.src = options.thumb(i);
      if (pictures.size >= KEPT) { pictures.delete(pictures.keys().next().value); }
      pictures.set(i, image);
    }
    if (!image.complete || !image.naturalWidth) { return null; }
    return { image: image, x: 0, y: 0, width: image.naturalWidth, height: image.naturalHeight };
  }
  function tile(i, side, line, at) { // at: another place than its own
    const p = at || place(i);
    if (p.x < -side || p.y < -side || p.x > width + side || p.y > height + side) { return; }
    const found = source(i);
    if (found) {
      const times = side / Math.max(found.width, found.height);
      const w = found.width * times, h = found.height * times;
      context.drawImage(found.image, found.x, found.y, found.width, found.height, p.x - w / 2, p.y - h / 2, w, h);
      context.strokeStyle = css(i); context.lineWidth = line;
      context.strokeRect(p.x - w / 2, p.y - h / 2, w, h);
    } else {
      context.fillStyle = css(i);
      context.fillRect(p.x - side / 4, p.y - side / 4, side / 2, side / 2);
    }
  }
  let named = []; // the labels of the classes that are written now
  function names() { // at the clusters, as many as have room; the largest classes first
    const taken = [];
    const free = (box) => taken.every((other) => box.left > other.right || box.right < other.left || box.top > other.bottom || box.bottom < other.top);
    const close = !sheet && pictured && view.scale > 1.2; // points may be pictures then
    named = [];
    context.font = "600 12px system-ui, sans-serif"; context.textAlign = "center"; context.textBaseline = "top";
    clusters.forEach(function (each) {
      const p = place(each.exemplar);
      if (p.x < 0 || p.y < 0 || p.x > width || p.y > height || (fits && !fits[each.exemplar])) { return; }
      if (taken.some((box) => p.x > box.left && p.x < box.right && p.y > box.top && p.y < box.bottom)) { return; }
      const whole = String(options.name(each.label));
      const text = whole.length > NAMED ? whole.slice(0, NAMED - 1) + "…" : whole;
      const half = Math.max(context.measureText(text).width, EXEMPLAR) / 2 + 3;
      const above = options.thumb ? EXEMPLAR / 2 : 8;
      const x = Math.min(Math.max(p.x, half), width - half);
      const y = Math.min(Math.max(p.y, above + 2), height - above - 18);
      const box = { left: x - half, right: x + half, top: y - above - 2, bottom: y + above + 18 };
      if (!free(box)) { return; }
      taken.push(box); named.push(each.label);
      if (options.thumb && !(close && pictures.size > 0 && visibleNow <= TILES)) { tile(each.exemplar, EXEMPLAR, 3, { x: x, y: y }); }
      context.lineWidth = 4; context.lineJoin = "round"; context.strokeStyle = paper; context.fillStyle = inkNow;
      context.strokeText(text, x, y + above + 2); context.fillText(text, x, y + above + 2);
    });
  }
  function tileSide() { // of the pictures of a sheet, which grow more slowly than the map
    const room = 1.05 * base() / Math.sqrt(count) * Math.pow(view.scale, 0.75);
    return Math.max(9, Math.min(room, 1.4 * sheet.side));
  }
  function tiles() {
    const side = tileSide(), line = side > 22 ? 2 : 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    if (fits) {
      context.globalAlpha = 0.12;
      for (let i = 0; i < count; i++) { if (!fits[i]) { tile(i, side, line); } }
      context.globalAlpha = 1;
    }
    for (let i = 0; i < count; i++) { if (!fits || fits[i]) { tile(i, fits ? 1.15 * side : side, line); } }
  }
  function frame(i, side) {
    const p = place(i);
    context.lineWidth = 3; context.strokeStyle = inkNow;
    context.strokeRect(p.x - side / 2 - 3, p.y - side / 2 - 3, side + 6, side + 6);
  }
  function ring(i, radius, line) {
    const p = place(i);
    context.beginPath(); context.arc(p.x, p.y, radius, 0, 7);
    context.lineWidth = line; context.strokeStyle = inkNow; context.stroke();
  }
  function dots() {
    const began = performance.now(), share = moving ? Math.min(1, FRAME / Math.max(cost, 1)) : 1;
    pixels.fill(0);
    const radius = ratio * Math.max(1.2, Math.min(6, 170 / Math.sqrt(count) * Math.sqrt(view.scale)));
    if (fits) { points(Math.max(1, radius * 0.6), true, share); }
    const inside = points(fits ? Math.min(6 * ratio, Math.max(3 * ratio, radius)) : radius, false, share);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.putImageData(image, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    cost = (performance.now() - began) / share;
    visibleNow = inside;
    if (pictured && inside <= TILES && view.scale > 1.2) {
      const side = Math.max(30, Math.min(72, 0.5 * Math.sqrt(width * height / Math.max(inside, 1))));
      for (let n = 0; n < inside; n++) { tile(visible[n], side, 2); }
    }
  }
  function lines() { // from the chosen point to its neighbors
    const from = place(chosen);
    context.strokeStyle = inkNow; context.lineWidth = sheet ? 1.5 : 1; context.globalAlpha = sheet ? 1 : 0.7;
    near.forEach(function (j) {
      const to = place(j);
      context.beginPath(); context.moveTo(from.x, from.y); context.lineTo(to.x, to.y); context.stroke();
    });
    context.globalAlpha = 1;
  }
  function asked() { // a picture that is not on the map, where it would be
    const p = place(query), side = 52, image = query.image;
    context.strokeStyle = inkNow; context.lineWidth = 1; context.globalAlpha = 0.7;
    near.slice(0, 5).forEach(function (j) {
      const to = place(j);
      context.beginPath(); context.moveTo(p.x, p.y); context.lineTo(to.x, to.y); context.stroke();
    });
    context.globalAlpha = 1;
    if (image && image.complete && image.naturalWidth) {
      const part = Math.min(image.naturalWidth, image.naturalHeight);
      context.drawImage(image, (image.naturalWidth - part) / 2, (image.naturalHeight - part) / 2, part, part, p.x - side / 2, p.y - side / 2, side, side);
    }
    context.lineWidth = 7; context.strokeStyle = paper; context.strokeRect(p.x - side / 2, p.y - side / 2, side, side);
    context.lineWidth = 4; context.strokeStyle = inkNow; context.strokeRect(p.x - side / 2, p.y - side / 2, side, side);
  }
  function marks() {
    if (chosen >= 0) { lines(); }
    if (sheet) {
      const side = tileSide();
      near.forEach((j) => tile(j, 1.4 * side, 2));
      if (chosen >= 0) { tile(chosen, 1.8 * side, 2); frame(chosen, 1.8 * side); }
      if (hover >= 0 && hover !== chosen) { tile(hover, 1.5 * side, 2); frame(hover, 1.5 * side); }
      return;
    }
    near.forEach((j) => (chosen >= 0 ? ring(j, 5, 1.5) : ring(j, 7, 2)));
    if (chosen >= 0) { if (pictured) { tile(chosen, 44, 3); } else { ring(chosen, 9, 3); } }
    if (hover >= 0) { ring(hover, 8, 2.5); }
  }
  function draw() {
    waiting = false;
    if (!pixels) { return; }
    if (!strong) { paint(); }
    if (sheet) { tiles(); } else { dots(); }
    if (options.name && data.labels) { names(); }
    marks();
    if (query) { asked(); }
    if (document.activeElement === canvas && canvas.matches(":focus-visible")) {
      context.strokeStyle = inkNow; context.lineWidth = 1; context.beginPath();
      context.moveTo(width / 2 - 9, height / 2); context.lineTo(width / 2 + 9, height / 2);
      context.moveTo(width / 2, height / 2 - 9); context.lineTo(width / 2, height / 2 + 9);
      context.stroke();
    }
  }
  function move() { // while the map moves, slow frames leave out points; at rest all are drawn
    moving = true;
    clearTimeout(rest);
    rest = setTimeout(function () { moving = false; redraw(); }, 150);
    redraw();
  }
  function redraw() { if (!waiting) { waiting = true; requestAnimationFrame(draw); } }
  function fit() {
    ratio = Math.min(2, window.devicePixelRatio || 1);
    width = canvas.clientWidth; height = canvas.clientHeight;
    if (!width || !height) { return; }
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    image = context.createImageData(canvas.width, canvas.height);
    pixels = new Uint32Array(image.data.buffer);
    redraw();
  }
  function zoom(factor, x, y) {
    const next = Math.max(0.6, Math.min(FAR, view.scale * factor)), real = next / view.scale;
    view.x = x - width / 2 - (x - width / 2 - view.x) * real;
    view.y = y - height / 2 - (y - height / 2 - view.y) * real;
    view.scale = next;
    move();
  }
  function nearest(x, y, reach) {
    const size = base() * view.scale, left = width / 2 + view.x - size / 2, top = height / 2 + view.y - size / 2;
    let best = -1, least = reach * reach;
    within((x - reach - left) / size, (y - reach - top) / size, (x + reach - left) / size, (y + reach - top) / size, function (start, end) {
      for (let n = start; n < end; n++) {
        if (fits && !fits[order[n]]) { continue; }
        const dx = left + xs[n] * size - x, dy = top + ys[n] * size - y, far = dx * dx + dy * dy;
        if (far < least) { least = far; best = order[n]; }
      }
    });
    return best;
  }
  function point(i, x, y) {
    if (i !== hover) { hover = i; redraw(); }
    options.hover(i, x, y, width, height);
  }

  function choose(i) {
    if (i >= 0) { options.choose(i); } else if (options.clear) { options.clear(); }
  }

  const pointers = new Map();
  let moved = 0, spread = 0;
  function at(event) {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }
  canvas.addEventListener("pointerdown", function (event) {
    pointers.set(event.pointerId, at(event)); moved = 0; spread = 0;
    canvas.setPointerCapture(event.pointerId); canvas.style.cursor = "grabbing";
  });
  canvas.addEventListener("pointermove", function (event) {
    const now = at(event), before = pointers.get(event.pointerId);
    if (!before) { point(nearest(now.x, now.y, sheet ? Math.max(9, 0.75 * tileSide()) : REACH), now.x, now.y); return; }
    pointers.set(event.pointerId, now);
    if (pointers.size === 1) {
      moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
      if (moved > 4) { view.x += now.x - before.x; view.y += now.y - before.y; point(-1); move(); }
    } else if (pointers.size === 2) {
      const two = Array.from(pointers.values());
      const apart = Math.hypot(two[0].x - two[1].x, two[0].y - two[1].y);
      if (spread) { zoom(apart / spread, (two[0].x + two[1].x) / 2, (two[0].y + two[1].y) / 2); }
      spread = apart; moved = 99;
    }
  });
  function lift(event) {
    const was = pointers.delete(event.pointerId);
    canvas.style.cursor = ""; spread = 0;
    if (was && event.type === "pointerup" && moved <= 4) {
      const now = at(event), i = nearest(now.x, now.y, sheet ? Math.max(12, 0.9 * tileSide()) : REACH);
      if (!sheet) { point(-1); }
      choose(i);
    }
  }
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", function () { if (!pointers.size) { point(-1); } });
  canvas.addEventListener("wheel", function (event) {
    if (!event.ctrlKey && document.activeElement !== canvas) { return; } // the page scrolls
    event.preventDefault();
    const now = at(event);
    zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0016)), now.x, now.y);
  }, { passive: false });
  const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
  function middle() {
    if (!options.middle) { return; }
    const i = nearest(width / 2, height / 2, 1e6);
    if (i >= 0) { const p = place(i); point(i, p.x, p.y); options.middle(i); }
  }
  canvas.addEventListener("keydown", function (event) {
    const by = moves[event.key];
    if (by) { view.x += by[0]; view.y += by[1]; redraw(); middle(); }
    else if (event.key === "+" || event.key === "=") { zoom(1.4, width / 2, height / 2); middle(); }
    else if (event.key === "-") { zoom(1 / 1.4, width / 2, height / 2); middle(); }
    else if (event.key === "0") { reset(); }
    else if (event.key === "Enter" || event.key === " ") {
      const i = nearest(width / 2, height / 2, 1e6);
      point(-1);
      choose(i);
    } else if (event.key === "Escape" && options.clear) { options.clear(); }
    else { return; }
    event.preventDefault();
  });
  canvas.addEventListener("focus", redraw);
  canvas.addEventListener("blur", function () { point(-1); redraw(); });
  function reset() { view = { scale: 1, x: 0, y: 0 }; redraw(); }
  dark.addEventListener("change", function () { strong = null; redraw(); });
  new ResizeObserver(fit).observe(canvas);
  fit();
  return {
    place: place, color: css, draw: draw, reset: reset, view: function () { return view; },
    named: function () { return named; }, query: function () { return query; },
    zoom: function (factor) { // about the chosen point if it is in view
      const p = chosen >= 0 ? place(chosen) : null;
      const seen = p && p.x > 0 && p.y > 0 && p.x < width && p.y < height;
      zoom(factor, seen ? p.x : width / 2, seen ? p.y : height / 2);
    },
    mark: function (row, rows, image) { // image: of a picture that is not on the map
      chosen = row; near = rows;
      query = null;
      if (image && rows.length) { // the mean of its nearest
        const some = rows.slice(0, 5), mean = (values) => some.reduce((sum, j) => sum + values[j], 0) / some.length;
        query = { x: mean(data.x), y: mean(data.y), image: image };
      }
      const all = row < 0 ? rows : [row];
      const seen = all.some(function (i) {
        const p = place(i);
        return p.x > 0 && p.y > 0 && p.x < width && p.y < height;
      });
      if (all.length && !seen) { reset(); } else { redraw(); }
    },
    filter: function (mask) { fits = mask; redraw(); }
  };
}
