(async function () {
  "use strict";
  const box = document.getElementById("routes");
  document.getElementById("here").textContent = location.origin;
  const answer = await fetch("openapi.json");
  if (!answer.ok) {
    box.textContent = "This description requires the token: open the gallery and enter it there.";
    return;
  }
  const api = await answer.json();
  function add(parent, name, text) {
    const made = document.createElement(name);
    made.textContent = text;
    parent.append(made);
    return made;
  }
  function field(list, name, kind, words) {
    const item = add(list, "li", "");
    add(item, "code", name);
    item.append((kind ? " (" + kind + ")" : "") + (words ? ": " + words : ""));
  }
  Object.entries(api.paths).forEach(function ([path, methods]) {
    Object.entries(methods).forEach(function ([method, about]) {
      const part = add(box, "section", "");
      const title = add(part, "h2", "");
      add(title, "code", method.toUpperCase() + " " + path);
      add(part, "p", about.description || about.summary);
      const list = add(part, "ul", "");
      (about.parameters || []).forEach((each) => field(list, each.name, each.in, each.description || each.schema.description));
      const form = about.requestBody && about.requestBody.content["multipart/form-data"];
      if (form) {
        const schema = api.components.schemas[form.schema.$ref.split("/").pop()];
        Object.entries(schema.properties).forEach(([name, each]) => field(list, name, "form", each.description));
      }
      if (!list.children.length) { list.remove(); }
    });
  });
})();
