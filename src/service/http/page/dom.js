// What the page is put together with. Everything that comes from the server goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; `text` is its text. */
export function element(tag, attributes = {}, ...children) {
  return dressed(document.createElement(tag), attributes, children);
}

/** The same for drawings. */
export function drawn(tag, attributes = {}, ...children) {
  return dressed(document.createElementNS(SVG, tag), attributes, children);
}

export function byId(id) {
  return document.getElementById(id);
}

/** Sets the text where it is another one: what stands still is not touched, and no selection is lost. */
export function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A name that may be long: what does not fit is cut by the style sheet, and stands in the title. */
export function putName(node, name) {
  put(node, name);
  if (node.title !== name) node.title = name;
}

/** Shows or hides, and tells which. */
export function show(node, shown) {
  if (node.hidden === shown) node.hidden = !shown;
  return shown;
}

export function mark(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

const kept = new WeakMap();

/**
 * One child of `parent` for each item, in their order. `make(item)` gives `{node, update(item)}`; a child stays as long as its
 * key does, so that focus and selection stay too.
 */
export function keyed(parent, items, keyOf, make) {
  const before = kept.get(parent) ?? new Map();
  const after = new Map();
  items.forEach((item, at) => {
    const key = keyOf(item);
    const part = before.get(key) ?? make(item);
    after.set(key, part);
    part.update(item);
    if (parent.children[at] !== part.node) parent.insertBefore(part.node, parent.children[at] ?? null);
  });
  for (const [key, part] of before) if (!after.has(key)) part.node.remove();
  kept.set(parent, after);
}

function dressed(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}
