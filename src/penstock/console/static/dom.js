// Makes elements. Texts are only ever set as text, so that no value can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return an HTML element. `on…` are listeners; attributes that are false or null are left out. */
export function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** Return an SVG element. */
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false),
  );
  return element;
}

/** Replace what an element holds. */
export function show(element, ...children) {
  element.replaceChildren(
    ...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false),
  );
}

let made = 0;

/** Return an id that no other element has. */
export function newId(what) {
  made += 1;
  return `${what}-${made}`;
}

/** Return a label over an input, with a hint below; the input is given what ties them together. */
export function field(label, input, hint = "") {
  input.id ||= newId("field");
  const parts = [el("label", { for: input.id }, label), input];
  if (hint) {
    const id = `${input.id}-hint`;
    input.setAttribute("aria-describedby", id);
    parts.push(el("p", { id, class: "hint" }, hint));
  }
  return el("div", { class: "field" }, parts);
}

/** Return a box for a place where there is nothing to see yet, and what to do about it. */
export function empty(title, ...next) {
  return el("div", { class: "empty" }, el("p", { class: "empty-title" }, title), el("p", {}, next));
}

/** Return a box that says what went wrong, where, and what to do next. */
export function problem(failure) {
  return el(
    "div",
    { class: "problem", role: "alert" },
    el("p", { class: "problem-title" }, failure.title ?? "This did not work"),
    el("p", { class: "problem-text" }, failure.message),
    failure.next ? el("p", {}, failure.next) : null,
    failure.code ? el("p", { class: "hint" }, `${failure.where ?? ""} · ${failure.code}`) : null,
  );
}
