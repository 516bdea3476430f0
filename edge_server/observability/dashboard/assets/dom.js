/** Creates elements. Texts are inserted as text only, so that texts of devices never become markup. */

const SVG = "http://www.w3.org/2000/svg";
const LONG = 40;
const NUMBER = /^(-|-?[\d.,]+(e[+-]?\d+)?\s?[a-zA-Zµ%°]*|[\d,]+ (of|min|h) [\d,]+( s| min)?)$/;

/** An element with attributes (`text`, `on` and `class` among them) and children; null children are left out. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An SVG element, as `el`. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "on") for (const [type, listener] of Object.entries(value)) element.addEventListener(type, listener);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set the text if it changes: an unchanged element is neither redrawn nor read out again. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set or remove an attribute if that changes anything. */
export function mark(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Make these the children, in this order; remaining children are not touched, so that no click on them is lost. */
export function arrange(parent, children) {
  const wanted = new Set(children);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  children.forEach((child, place) => {
    if (parent.children[place] !== child) parent.insertBefore(child, parent.children[place] ?? null);
  });
}

let fields = 0;

/** A control below its label. */
export function field(text, control, ...more) {
  control.id ||= `field-${(fields += 1)}`;
  return el("div", { class: "field" }, el("label", { for: control.id, text }), ...more, control);
}

/** Replace the options of a select if they changed, keeping the chosen one. */
export function choices(select, options) {
  const made = JSON.stringify(options);
  if (select.dataset.made === made) return;
  const chosen = select.value;
  select.replaceChildren(...options.map(([value, text]) => el("option", { value, text })));
  select.value = options.some(([value]) => value === chosen) ? chosen : (options[0]?.[0] ?? "");
  select.dataset.made = made;
}

/** A table of rows of texts or nodes; the first cell of each row is its head, numbers are right-aligned. */
export function plainTable(caption, heads, rows) {
  const sides = heads.map((_, place) => sideOf(rows.map((row) => row[place])));
  const cell = (value, place) => {
    const given = { "data-head": heads[place], class: sides[place], role: place ? "cell" : "rowheader", scope: place ? null : "row" };
    return el(place ? "td" : "th", given, value instanceof Node ? value : String(value));
  };
  const body = el("tbody", { role: "rowgroup" }, rows.map((row) => el("tr", { role: "row" }, row.map(cell))));
  return tableOf(caption, heads, sides, body);
}

/** A table around its body; its roles keep it a table for screen readers where it is drawn as cards. */
export function tableOf(caption, heads, sides, body) {
  const head = (text, place) => el("th", { scope: "col", role: "columnheader", class: sides[place], text });
  return el("table", { class: "plain", role: "table" },
    el("caption", { class: "unseen", text: caption }),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, heads.map(head))), body);
}

function sideOf(cells) {
  const texts = cells.map((cell) => (cell instanceof Node ? cell.textContent : String(cell)));
  if (texts.length && texts.every((text) => NUMBER.test(text))) return "number";
  return texts.some((text) => text.length > LONG) ? "words" : null;
}

/** An empty state: a heading and what to do. */
export function emptyState(title, ...lines) {
  return el("div", { class: "empty" }, el("p", { class: "empty-title", text: title }),
    lines.map((line) => (line instanceof Node ? line : el("p", { text: line }))));
}
