(function () {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const K = 24, PAGE = window.innerWidth < 960 ? 12 : 24, NEAR = window.innerWidth < 600 ? 8 : 24;
  const site = window.kinspaceSite || null;
  let about, classes, points, map = null, marked = [-1, []], labelOf, classOf, shown = 0, rows = [], expected = "", requests = 0, upload = null;
  let filter = { label: -1, attribute: "" }, fits = null, uploadUrl = null, dial = [], wrong = new Map(), current = -1;

  // ---- data: from the server, or from the file beside a static page -----------------------------
  async function ask(path, options) {
    let answer;
    try { answer = await fetch(path, options); }
    catch (error) { throw new Error("The server does not answer. Is it still running?"); }
    const body = await answer.json().catch(function () { return {}; });
    if (answer.status === 401) { $("login").showModal(); throw new Error(body.error); }
    if (!answer.ok) { throw new Error(body.error || "The server answered with status " + answer.status + "."); }
    return body;
  }
  function where() {
    const found = {};
    if (filter.label >= 0) { found["class"] = classOf.get(filter.label); }
    if (filter.attribute) { found[filter.attribute] = true; }
    return JSON.stringify(found);
  }
  async function neighbors(row) {
    if (!site) {
      const id = encodeURIComponent(points.ids[row]);
      return (await ask("api/neighbors/" + id + "?k=" + K + "&filter=" + encodeURIComponent(where()))).neighbors;
    }
    return site.near.rows[row].map(function (other, place) {
      return {
        row: other, similarity: site.near.cosines[row][place] / 1000
      };
    }).filter((each) => !fits || fits[each.row]);
  }
  function search(file) {
    const form = new FormData();
    form.append("picture", file, "picture");
    form.append("k", String(K));
    form.append("filter", where());
    if (dial.length) { form.append("strangers", String(setting().strangers)); }
    return ask("api/search", { method: "POST", body: form });
  }

  // ---- elements ----------------------------------------------------------------------------------
  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) { made.className = className; }
    if (text !== undefined) { made.textContent = text; }
    return made;
  }
  const thumb = (row) => "thumb/" + row + ".jpg";
  const sizeOf = (name) => (classes.classes.find((each) => each.name === name) || { pictures: 0 }).pictures;
  const className = (row) => (points.labels ? classOf.get(points.labels[row]) : "");
  function setStatus(text) { $("status").textContent = text; }
  function showError(error) {
    $("error").textContent = error.message;
    $("error").hidden = false;
    setStatus("");
  }
  function hideError() { $("error").hidden = true; }

  function card(found, expected) { // expected: the class of the answer; another one is marked
    const item = element("li"), button = element("button");
    button.type = "button";
    const image = element("img");
    image.alt = ""; image.loading = "lazy"; image.decoding = "async"; image.src = thumb(found.row);
    const frame = element("span", "frame");
    frame.append(image);
    button.append(frame);
    const name = className(found.row), path = points.ids[found.row];
    const near = found.similarity === undefined ? "" : "similarity " + found.similarity.toFixed(3);
    button.title = near ? path + " (" + near + ")" : path;
    button.dataset.id = path;
    if (near) { button.dataset.similarity = found.similarity.toFixed(3); }
    const line = element("span", "class", name || path);
    if (wrong.has(found.row)) { frame.append(element("span", "mark", "wrong label")); }
    if (expected && name && name !== expected) {
      item.className = "other";
      frame.append(element("span", "mark", "other class"));
    }
    button.append(line, element("span", "for-readers", (name ? ", " + path : "") + (near && ", " + near)));
    button.addEventListener("click", function () { choose(found.row, true); });
    item.append(button);
    return item;
  }

  // ---- results: all pictures, neighbors of a picture, neighbors of an upload --------------------
  let notice = ""; // of a change, said with the next list
  function title(text, note) {
    const words = [notice, note].filter(Boolean).join(" ");
    notice = "";
    $("results-title").textContent = text;
    $("results-note").textContent = words;
    $("results-note").hidden = !words;
  }
  function filterWords() {
    const words = [];
    if (filter.label >= 0) { words.push(classOf.get(filter.label)); }
    if (filter.attribute) { words.push(filter.attribute); }
    return words.join(", ");
  }
  function browse() {
    upload = null; requests++;
    hideError();
    showQuery(null);
    current = -1;
    rows = browseOrder.filter((row) => !fits || fits[row]);
    $("list").textContent = ""; shown = 0; expected = "";
    const words = filterWords();
    title(words ? "Pictures of " + words : "Pictures");
    more();
    mark(-1, []);
    setStatus(rows.length.toLocaleString("en") + (rows.length === 1 ? " picture" : " pictures") +
      (words ? " of " + words : "") + ".");
  }
  function more() {
    const first = shown;
    const page = current < 0 && !upload ? PAGE : NEAR;
    rows.slice(shown, shown + page).forEach((each) => $("list").append(card(typeof each === "number" ? { row: each } : each, expected)));
    shown = Math.min(rows.length, shown + page);
    $("more").hidden = shown >= rows.length;
    if (first) { $("list").children[first].firstChild.focus(); }
  }
  function showNear(found, heading, name) {
    const words = filterWords();
    title(heading, words && "Filter: " + words + (site ? ", applied to the " + (site.near.rows[0] || []).length + " nearest neighbors of the picture" : ""));
    rows = found; shown = 0; expected = name;
    $("list").textContent = "";
    more();
    if (!found.length) { $("results-note").textContent += ". No picture matches."; $("results-note").hidden = false; }
  }
  function showQuery(source, alt) { // nothing, or a picture that is asked about
    $("query").hidden = !source;
    $("answer").hidden = !source;
    $("invite").hidden = Boolean(source);
    $("status").classList.toggle("for-readers", Boolean(source)); // the answer says the same in large
    $("query-picture").title = "";
    $("clear").hidden = !source && !filterWords();
    $("drop").classList.toggle("asked", Boolean(source));
    if (!site) { $("pick").textContent = source ? "Another picture" : "Choose a picture"; }
    ["copy", "wrong", "add", "in-report", "name-form"].forEach((id) => { $(id).hidden = true; });
    $("find-form").hidden = Boolean(source);
    $("dial-box").hidden = !(source && upload && dial.length);
    answer("", "");
    if (source) { $("query-picture").src = source; $("query-picture").alt = alt; }
  }
  function answer(name, why, best) { // best: what an unknown picture looks most like
    $("answer-class").textContent = name;
    $("answer-class").classList.toggle("unknown", Boolean(best));
    $("answer-best").hidden = !best;
    $("answer-best").textContent = best || "";
    $("answer-why").textContent = why;
  }
  const sentence = (text) => (text ? text[0].toUpperCase() + text.slice(1) + "." : "");
  function choose(row, fromList) {
    const hash = "#picture=" + row;
    if (location.hash === hash) { show(row); } else { history.pushState(null, "", hash); show(row); }
    if (fromList) { $("results").focus({ preventScroll: true }); }
    if (fromList || window.innerWidth < 960) { $("drop").scrollIntoView({ block: "nearest" }); }
  }
  async function show(row) {
    const turn = ++requests;
    upload = null;
    hideError();
    showQuery(thumb(row), "the chosen picture");
    const name = className(row);
    current = row;
    answer(name || points.ids[row].split("/").pop(), "");
    $("query-picture").title = points.ids[row];
    $("copy").hidden = false;
    $("copy").textContent = "Copy path";
    $("wrong").hidden = !name;
    $("in-report").hidden = !about.report || site !== null || !inReport(row);
    $("in-report").href = "report/#id=" + encodeURIComponent(points.ids[row]);
    showMarks();
    try {
      const found = await neighbors(row);
      if (turn !== requests) { return; }
      showNear(found, "Most similar pictures", name);
      mark(row, found.map((each) => each.row));
      const first = found.slice(0, 8), same = first.filter((each) => className(each.row) === name).length;
      if (name && first.length) {
        answer(name, sizeOf(name) === 1 ? "The gallery has no other picture of this class." :
          same + " of the nearest " + first.length + " are " + name + ".");
      }
      setStatus(found.length + " nearest pictures" + (name && first.length ? ", " + same + " of the first " + first.length + " are " + name : "") + ".");
    } catch (error) { if (turn === requests) { showError(error); } }
  }
  async function showUpload(file) {
    if (site) { return; }
    hideError();
    if (file.size > about.upload_bytes) {
      showError(new Error("The picture has " + (file.size / 2 ** 20).toFixed(1) + " MiB; the limit is " +
        (about.upload_bytes / 2 ** 20).toFixed(0) + " MiB."));
      return;
    }
    const turn = ++requests;
    upload = file;
    if (location.hash) { history.pushState(null, "", location.pathname); }
    if (uploadUrl) { URL.revokeObjectURL(uploadUrl); }
    uploadUrl = URL.createObjectURL(file);
    current = -1;
    showQuery(uploadUrl, "your picture");
    answer("Searching…", "");
    setStatus("Searching for similar pictures.");
    await askAgain(turn);
  }
  async function askAgain(turn) { // the picture is the same; the filter or the dial may have changed
    try {
      const found = await search(upload);
      if (turn !== requests) { return; }
      const said = found.verdict;
      if (said && !said.known) {
        const why = said.evidence.slice(said.evidence.indexOf("; ") + 2); // the rest is the headline
        answer("Unknown", sentence(why), sentence(said.headline.replace(/^unknown, /, "")));
      } else if (said) { answer(said.class, sentence(said.evidence)); }
      else { answer("The most similar pictures", ""); }
      offerToAdd(said);
      showNear(found.neighbors, "Most similar pictures", said && said.known ? said.class : "");
      mark(-1, found.neighbors.map((each) => each.row));
      setStatus(found.neighbors.length + " nearest pictures" + (said ? ". " + said.text : "") + ".");
    } catch (error) {
      if (turn !== requests) { return; }
      browse();
      showError(error);
    }
  }
  function refresh() { // after a change of the filter
    $("clear").hidden = !upload && !filterWords() && chosenRow() < 0;
    if (upload) { askAgain(++requests); return; }
    const row = chosenRow();
    if (row >= 0) { show(row); } else { browse(); }
  }
  function chosenRow() {
    const found = /^#picture=(\d{1,9})$/.exec(location.hash);
    return found && Number(found[1]) < points.ids.length ? Number(found[1]) : -1;
  }

  // ---- filters -----------------------------------------------------------------------------------
  function bits(text) {
    const bytes = atob(text), found = new Uint8Array(points.ids.length);
    for (let i = 0; i < found.length; i++) { found[i] = (bytes.charCodeAt(i >> 3) >> (i & 7)) & 1; }
    return found;
  }
  function applyFilter() {
    const text = $("class-filter").value.trim().toLowerCase();
    const label = text ? labelOf.get(text) : -1;
    if (label === undefined) {
      if (filter.label >= 0) { filter.label = -1; } else { return; }
    } else if (label === filter.label && $("attribute-filter").value === filter.attribute) { return; }
    filter = { label: label === undefined ? -1 : label, attribute: $("attribute-filter").value };
    fits = null;
    if (filter.attribute) { fits = bits(points.attributes[filter.attribute]); }
    if (filter.label >= 0) {
      const within = fits, labels = points.labels;
      fits = new Uint8Array(labels.length);
      for (let row = 0; row < fits.length; row++) {
        if (labels[row] === filter.label && (!within || within[row])) { fits[row] = 1; }
      }
    }
    if (map) { map.filter(fits); }
    refresh();
  }

  // ---- the dial, and labels that are marked as wrong ---------------------------------------------
  const setting = () => dial[Number($("dial").value)];
  function makeDial() {
    const limits = about.thresholds;
    if (!limits || site) { return; }
    dial = limits.settings.slice();
    if (!dial.some((each) => each.strangers === limits.strangers)) {
      dial.push({ strangers: limits.strangers, text: limits.text });
      dial.sort((a, b) => a.strangers - b.strangers);
    }
    $("dial").max = dial.length - 1;
    $("dial").value = dial.findIndex((each) => each.strangers === limits.strangers);
    showDial();
  }
  function showDial() {
    $("dial-text").textContent = sentence(setting().text);
    $("dial").setAttribute("aria-valuetext", "at most " + 100 * setting().strangers + " of 100 strangers get a class");
  }
  function showMarks() {
    const quote = (text) => '"' + text.replaceAll('"', '""') + '"';
    const lines = Array.from(wrong, ([row, near]) => [points.ids[row], className(row), near].map(quote).join(","));
    $("marked-next").textContent = site ? "" : "then: kinspace relabel RUN --table wrong-labels.csv";
    $("marked").hidden = !wrong.size;
    $("marked-count").textContent = wrong.size + (wrong.size === 1 ? " wrong label" : " wrong labels");
    $("marked-save").href = "data:text/csv;charset=utf-8," + encodeURIComponent("id,class,suggested\r\n" + lines.join("\r\n") + "\r\n");
    $("wrong").setAttribute("aria-pressed", String(wrong.has(current)));
    $("wrong").textContent = wrong.has(current) ? "Marked as wrong" : "Wrong label";
    if (canEdit()) { $("wrong").removeAttribute("aria-pressed"); }
  }
  function mostFrequent(names) {
    const counts = new Map();
    names.forEach((name) => counts.set(name, (counts.get(name) || 0) + 1));
    return Array.from(counts).sort((a, b) => b[1] - a[1])[0]?.[0] || "";
  }
  function suggested() { // the most frequent other class of the neighbors, else their class
    const near = Array.from($("list").children).slice(0, 8).map((item) => item.querySelector(".class").firstChild.textContent);
    return mostFrequent(near.filter((name) => name !== className(current))) || mostFrequent(near);
  }
  function markWrong() {
    if (canEdit()) { openForm("What is it?", suggested(), "The gallery is changed at once."); return; }
    if (!wrong.delete(current)) { wrong.set(current, suggested()); }
    showMarks();
  }

  // ---- changes of the gallery, where the server allows them --------------------------------------
  const canEdit = () => !site && about.editable;
  let best = ""; // the class that an upload looks most like
  function offerToAdd(said) {
    best = said ? said.best : "";
    if (!canEdit() || !$("name-form").hidden) { return; }
    $("add").hidden = Boolean(said && said.exact);
    $("add").textContent = !said ? "Add to the gallery" : said.known ? "Add to the gallery" : "Add as a new class";
    $("add").dataset.name = said && said.known ? said.class : "";
  }
  function openForm(label, name, note) {
    $("name-form").hidden = false;
    $("add").hidden = true;
    $("name-label").textContent = label;
    $("name").value = name;
    $("name-note").textContent = note;
    $("name").focus();
    $("name").select();
  }
  function startToAdd() {
    if (!labeled()) { save(""); return; }
    openForm("Which class is it?", $("add").dataset.name,
      "A name the gallery does not have yet is a new class. The picture is kept in the run folder" + (best ? "; it looks most like " + best : "") + ".");
  }
  async function save(name) {
    const form = new FormData(), added = upload !== null;
    if (added) { form.append("picture", upload, "picture"); } else { form.append("id", points.ids[current]); }
    form.append("class", name);
    $("name-save").disabled = true;
    try {
      const found = await ask(added ? "api/pictures" : "api/labels", { method: "POST", body: form });
      await readGallery();
      filter = { label: -1, attribute: "" }; fits = null;
      $("class-filter").value = $("attribute-filter").value = "";
      upload = null;
      const size = sizeOf(found["class"]);
      notice = (added ? "Added to the gallery" : "Label changed") + (size ? ": " + found["class"] + " has " +
        size + (size === 1 ? " picture" : " pictures") + " now." : ".");
      choose(found.row, false);
      openMap();
    } catch (error) { showError(error); }
    $("name-save").disabled = false;
  }
  function inReport(row) { // its pictures are those of the test part, if the run has parts
    const test = points.attributes["part=test"];
    return !test || bits(test)[row] === 1;
  }

  // ---- a picture of the gallery by its path, its address on this page, or that of its thumbnail ---
  function find(text) {
    const asked = text.trim().replace(/^file:\/\//, "");
    const number = /#picture=(\d{1,9})$/.exec(asked) || /\/thumb\/(\d{1,9})\.jpg$/.exec(asked);
    if (number && Number(number[1]) < points.ids.length) { return Number(number[1]); }
    const same = points.ids.indexOf(asked);
    if (same >= 0 || !asked) { return same; }
    const long = points.ids.findIndex((id) => asked.endsWith("/" + id));
    return long >= 0 ? long : points.ids.findIndex((id) => id.endsWith("/" + asked));
  }
  function showNamed(text) {
    const row = find(text);
    if (row >= 0) { hideError(); $("find").value = ""; choose(row, false); return; }
    showError(new Error("The gallery has no picture “" + text.trim().slice(0, 200) + "”."));
  }
  async function copyPath() {
    try { await navigator.clipboard.writeText(points.ids[current]); $("copy").textContent = "Copied"; }
    catch (error) { showError(new Error("The browser does not allow copying: " + points.ids[current])); }
  }

  // ---- the page ----------------------------------------------------------------------------------
  let browseOrder = [];
  const labeled = () => classes.classes.length > 0;
  function interleaved(count) { // a fixed order: one picture of each class, then a second of each, and so on
    const turns = new Uint32Array(count), seen = new Map();
    let most = 0;
    for (let row = 0; row < count; row++) {
      const label = points.labels ? points.labels[row] : row, turn = seen.get(label) || 0;
      seen.set(label, turn + 1);
      turns[row] = turn;
      most = Math.max(most, turn);
    }
    const next = new Uint32Array(most + 2), order = new Uint32Array(count); // rows sorted by turn
    for (let row = 0; row < count; row++) { next[turns[row] + 1]++; }
    for (let turn = 0; turn <= most; turn++) { next[turn + 1] += next[turn]; }
    for (let row = 0; row < count; row++) { order[next[turns[row]]++] = row; }
    return order;
  }
  function verdict() {
    const results = about.results;
    const box = $("verdict-body");
    const percent = (value) => (100 * value).toFixed(1) + " %";
    box.textContent = "";
    if (results) {
      const kind = results.unseen ? " classes not seen in training" : " classes";
      box.append(element("p", "lead", "For " + results.pictures.toLocaleString("en") + " pictures of " +
        results.classes + kind + ", the nearest other picture is of the same class in " +
        percent(results.rows[0]["recall@1"]) + " of cases" + (results.rows.length > 1 ? "; with " +
        results.rows.slice(1).map((row) => row.name + " in " + percent(row["recall@1"])).join(" and with ") : "") + "."));
      const names = Object.keys(results.rows[0]).filter((name) => name !== "name");
      const scroll = element("div", "scroll"), table = element("table");
      scroll.tabIndex = 0; scroll.setAttribute("role", "region"); scroll.setAttribute("aria-label", "Results on the test classes");
      const head = table.createTHead().insertRow(), body = table.createTBody();
      const corner = element("th", "", "Test classes"); corner.scope = "col"; head.append(corner);
      names.forEach(function (name) { const th = element("th", "", name.replace("recall", "Recall").replace("map", "MAP").replace("@r", "@R")); th.scope = "col"; head.append(th); });
      results.rows.forEach(function (row) {
        const line = body.insertRow(), th = element("th", "", row.name);
        th.scope = "row"; line.append(th);
        names.forEach((name) => { line.insertCell().textContent = name in row ? percent(row[name]) : "–"; });
      });
      const all = element("details");
      all.append(element("summary", "", "All numbers")); scroll.append(table); all.append(scroll); box.append(all);
    } else if (!about.trained) {
      box.append(element("p", "lead", "The model is the pretrained backbone " + about.backbone + ", without training."));
      box.append(element("p", "note", labeled() ? "“kinspace report” measures it on these pictures; “kinspace train” may improve it for them." :
        "The pictures have no classes, so its quality cannot be measured: look at the neighbors of some pictures."));
    } else { box.append(element("p", "note", "The run has no results.json: its training has not finished.")); }
    const limits = about.thresholds;
    if (!limits) {
      box.append(element("p", "note", sentence(about.uncalibrated)));
      return;
    }
    box.append(element("p", "lead", sentence(limits.text)));
    box.append(element("p", "note", "A stranger is a picture of a class that the gallery does not have. Calibrated on " + limits.basis + "."));
  }
  function hover(row, x, y, width, height) {
    const tip = $("map-tip");
    tip.hidden = row < 0;
    if (row < 0) { return; }
    if (tip.dataset.row !== String(row)) {
      tip.dataset.row = row;
      $("tip-picture").src = thumb(row);
      $("tip-class").textContent = className(row);
      $("tip-name").textContent = points.ids[row];
    }
    const left = x + 18 + tip.offsetWidth > width ? x - 18 - tip.offsetWidth : x + 18;
    tip.style.left = Math.max(2, left) + "px";
    tip.style.top = Math.max(2, Math.min(y - 30, height - tip.offsetHeight - 2)) + "px";
  }
  function options() {
    labelOf = new Map(); classOf = new Map();
    $("class-names").replaceChildren();
    while ($("attribute-filter").options.length > 1) { $("attribute-filter").remove(1); }
    classes.classes.forEach(function (each) {
      labelOf.set(each.name.toLowerCase(), each.label);
      classOf.set(each.label, each.name);
      const option = element("option"); option.value = each.name;
      option.label = each.name + " (" + each.pictures + ")";
      $("class-names").append(option);
    });
    // what no picture has, or all have, filters nothing
    const filters = classes.attributes.filter((each) => each.pictures && each.pictures < about.pictures);
    filters.forEach(function (each) {
      const option = element("option", "", each.name + " (" + each.pictures + ")");
      option.value = each.name;
      $("attribute-filter").append(option);
    });
    $("attribute-box").hidden = !filters.length;
    $("class-box").hidden = !labeled();
  }
  // lets the browser draw and react between two tasks; a hidden tab has no frames
  function frame() {
    return new Promise(function (go) { requestAnimationFrame(() => setTimeout(go)); setTimeout(go, 100); });
  }
  async function readGallery() {
    if (site) { about = site.about; classes = site.classes; points = site.pictures; }
    else { [about, classes, points] = await Promise.all(["api/about", "api/classes", "api/pictures"].map((path) => ask(path))); }
    $("title").textContent = about.name;
    $("subtitle").textContent = about.pictures.toLocaleString("en") + (about.pictures === 1 ? " picture" : " pictures") +
      (labeled() ? " of " + classes.classes.length.toLocaleString("en") + " classes" : "");
    options();
    browseOrder = interleaved(points.ids.length);
  }
  async function start() {
    try { await readGallery(); } catch (error) { showError(error); return; }
    hideError();
    document.title = about.name + " – kinspace gallery";
    $("report-link").hidden = site !== null || !about.report;
    if (site) {
      $("drop-title").textContent = "Click a picture to see its nearest neighbors";
      $("drop-help").textContent = "This static page has no model, so it cannot search with a new picture. “kinspace serve” opens the page with the model.";
      $("pick").remove(); $("file").remove();
    }
    makeDial();
    await frame();
    verdict();
    listen();
    const row = chosenRow();
    if (row >= 0) { show(row); } else { browse(); }
    document.body.dataset.ready = "yes";
    await frame();
    openMap();
  }
  function mark(row, rows) {
    marked = [row, rows, upload ? $("query-picture") : null];
    if (map) { map.mark(...marked); }
  }
  async function openMap() { // asks again while the map is being computed
    let found;
    try { found = site ? site.map : await ask("api/map"); }
    catch (error) { $("map-state").textContent = "The map could not be loaded. " + error.message; return; }
    if (found.state === "drawing") {
      $("map-state").textContent = "The map is being computed. This is done once and takes a minute or two; you can search meanwhile.";
      setTimeout(openMap, 2000);
      return;
    }
    if (found.state !== "ready") {
      $("map-state").textContent = "The map could not be computed; see the server’s log.";
      return;
    }
    await frame();
    $("map-state").hidden = true;
    $("map").hidden = $("map-tools").hidden = false;
    const canvas = $("map").cloneNode(); // an older map listens to the old one
    $("map").replaceWith(canvas);
    map = embeddingMap(canvas, { x: found.x, y: found.y, labels: points.labels }, {
      hover: hover, thumb: thumb, choose: (row) => choose(row, false), name: (label) => classOf.get(label),
      middle: (row) => setStatus("In the center: " + (className(row) ? className(row) + ", " : "") + points.ids[row])
    });
    map.filter(fits);
    map.mark(...marked);
    window.kinspaceMap = map;
    document.body.dataset.map = "ready";
  }
  let listening = false;
  function listen() {
    if (listening) { return; }
    listening = true;
    $("map-in").addEventListener("click", () => map.zoom(1.5));
    $("map-out").addEventListener("click", () => map.zoom(1 / 1.5));
    $("map-reset").addEventListener("click", () => map.reset());
    $("more").addEventListener("click", more);
    $("class-filter").addEventListener("input", applyFilter);
    $("class-filter").addEventListener("change", function () {
      const text = $("class-filter").value.trim();
      if (text && !labelOf.has(text.toLowerCase())) { setStatus("There is no class “" + text + "”."); }
    });
    $("attribute-filter").addEventListener("change", applyFilter);
    $("filters").addEventListener("submit", (event) => event.preventDefault());
    $("clear").addEventListener("click", function () {
      $("class-filter").value = ""; $("attribute-filter").value = "";
      filter = { label: -1, attribute: "" }; fits = null;
      if (map) { map.filter(null); }
      if (location.hash) { history.pushState(null, "", location.pathname); }
      browse();
    });
    window.addEventListener("popstate", refresh);
    $("copy").addEventListener("click", copyPath);
    $("wrong").addEventListener("click", markWrong);
    $("add").addEventListener("click", startToAdd);
    $("name-form").addEventListener("submit", function (event) { event.preventDefault(); save($("name").value); });
    $("name").addEventListener("keydown", (event) => { if (event.key === "Escape") { $("name-form").hidden = true; $("add").hidden = !upload || !canEdit(); } });
    $("find-form").addEventListener("submit", function (event) { event.preventDefault(); showNamed($("find").value); });
    $("marked-clear").addEventListener("click", function () { wrong.clear(); showMarks(); refresh(); });
    $("dial").addEventListener("input", function () {
      showDial();
      if (upload) { const turn = ++requests; setTimeout(() => turn === requests && askAgain(turn), 120); }
    });
    if (site) { return; }
    $("file").addEventListener("change", function () {
      if (this.files.length) { showUpload(this.files[0]); }
      this.value = "";
    });
    document.addEventListener("paste", function (event) {
      const file = Array.from(event.clipboardData.files)[0], text = event.clipboardData.getData("text").trim();
      if (file) { event.preventDefault(); showUpload(file); }
      else if (text && !(event.target instanceof HTMLInputElement)) { event.preventDefault(); showNamed(text); }
    });
    const over = (on) => $("drop").classList.toggle("over", on);
    document.addEventListener("dragover", function (event) { event.preventDefault(); over(true); });
    document.addEventListener("dragleave", function (event) { if (!event.relatedTarget) { over(false); } });
    document.addEventListener("drop", function (event) {
      event.preventDefault();
      over(false);
      const file = event.dataTransfer.files[0], text = event.dataTransfer.getData("text/uri-list") || event.dataTransfer.getData("text");
      if (text && find(text) >= 0) { showNamed(text); } // a picture of this page comes with both
      else if (file) { showUpload(file); }
      else if (text) { showNamed(text); }
    });
  }
  $("login-form").addEventListener("submit", async function (event) {
    event.preventDefault();
    $("login-error").hidden = true;
    try {
      const answer = await fetch("api/session", {
        method: "POST", headers: { Authorization: "Bearer " + $("token").value }
      });
      if (!answer.ok) { throw new Error("The token is wrong."); }
      $("token").value = "";
      $("login").close();
      if (listening) { location.reload(); } else { start(); } // the page may show data of another gallery
    } catch (error) { $("login-error").textContent = error.message; $("login-error").hidden = false; }
  });
  start();
})();
