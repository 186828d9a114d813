// Elements, and how they are kept up to date without losing the focus. Texts are texts: nothing here makes markup of a string.

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

// Written only when it is another: what a screen reader is at stays what it was.
export function write(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

// Let a body have one row for each record, in their order; a row that was there stays the same element.
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
    fill(found, record);
    before = found;
  }
  for (const gone of rows.values()) gone.remove();
}

export function figures(list, told) {
  keep(list, told, ([label]) => label, ([label]) => make("div", {}, make("dt", {}, label), make("dd")),
    (found, [, value]) => write(found.lastChild, value));
}

export function badge(element, state) {
  element.classList.add("badge");
  element.dataset.is = state;
  write(element, state);
}

export function number(value) {
  return value.toLocaleString("en");
}

export function counted(count, thing) {
  return `${number(count)} ${thing}${count === 1 ? "" : "s"}`;
}

export function rate(value) {
  return value === null ? "–" : value >= 100 ? number(Math.round(value)) : value.toFixed(1);
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
