// Elements, and updates that keep the focus. Strings are only ever text: nothing here turns one into markup.

export function make(tag, attributes = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...inside);
  return made;
}

export function fromTemplate(id) {
  return document.getElementById(id).content.cloneNode(true);
}

// Written only if it changed, so that a screen reader is not interrupted.
export function write(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

const shown = new WeakMap();

// The record of the row that contains an element.
export function recordOf(element) {
  return shown.get(element.closest("[data-key]"));
}

// Give a table body one row per record, in order; existing rows keep their elements, and all others go.
export function keep(body, records, key, row, fill) {
  const rows = new Map([...body.children].map((each) => [each.dataset.key, each]));
  let before = null;
  for (const record of records) {
    const name = key(record);
    let found = rows.get(name);
    rows.delete(name);
    if (!found) {
      found = row(record);
      found.dataset.key = name;
    }
    const place = before ? before.nextSibling : body.firstChild;
    if (found !== place) body.insertBefore(found, place);
    shown.set(found, record);
    fill(found, record);
    before = found;
  }
  while (body.lastChild !== before) body.lastChild.remove();
}

const ROLES = {TABLE: "table", THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TD: "cell"};

// When the style shows a table as cards, browsers no longer treat it as a table: roles tell screen readers.
function tellRoles(root) {
  for (const each of [root, ...root.querySelectorAll("thead, tbody, tr, th, td")]) {
    each.setAttribute("role", ROLES[each.tagName] ?? (each.scope === "col" ? "columnheader" : "rowheader"));
  }
}

// Give a table one row per record. Each cell names its column, because a card has no column heads.
export function keepTable(table, records, key, row, fill) {
  if (!table.hasAttribute("role")) tellRoles(table);
  const heads = [...table.tHead.rows[0].cells].map((each) => each.textContent.trim());
  keep(table.tBodies[0], records, key, (record) => {
    const made = row(record);
    tellRoles(made);
    [...made.cells].forEach((cell, index) => cell.setAttribute("data-label", heads[index]));
    return made;
  }, fill);
}

// Write the text of a cell; a card omits empty cells.
export function fillCell(cell, text) {
  write(cell, text || "–");
  cell.classList.toggle("none", !text);
}

export function figures(list, told) {
  keep(list, told, ([label]) => label, ([label]) => make("div", {}, make("dt", {}, label), make("dd")),
    (found, [, value]) => write(found.lastChild, value));
}

// The same for values that are not counts; empty ones are omitted.
export function facts(list, told) {
  figures(list, told.filter(([, value]) => value));
}

export function badge(element, state) {
  element.classList.add("badge");
  element.dataset.is = state;
  write(element, state);
}

export function number(value) {
  return value.toLocaleString("en");
}

export function counted(count, thing, things = `${thing}s`) {
  return `${number(count)} ${count === 1 ? thing : things}`;
}

export function rate(value) {
  return value === null ? "–" : value >= 100 ? number(Math.round(value)) : value.toFixed(1);
}

export function bytes(count) {
  for (const [unit, name] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (count >= unit) return `${(count / unit).toFixed(1)} ${name}`;
  }
  return counted(count, "byte");
}

export function age(ms) {
  if (ms <= 0) return "–";
  for (const [unit, name] of [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1_000, "s"]]) {
    if (ms >= unit) return `${Math.floor(ms / unit)} ${name}`;
  }
  return "< 1 s";
}

export function since(moment) {
  return age(Math.max(1, Date.now() - Date.parse(moment)));
}

// The time of day, with the date unless it is today.
export function clock(moment) {
  const at = new Date(moment);
  const time = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString("en-CA")} ${time}`;
}
