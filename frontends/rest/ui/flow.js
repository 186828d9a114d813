// What waits for what around one item: a list in layers, each item below those that it waits for, and lines between them.

import {ask, path, Refusal} from "./api.js";
import {badge, counted, make} from "./dom.js";

const MOST = 50;
const HEADER = "stanzaq-parents";
const SVG = "http://www.w3.org/2000/svg";

// The items that one waits for, or has waited for.
function parentsOf({after, headers}) {
  if (after) return after;
  try {
    return JSON.parse(headers[HEADER] ?? "[]");
  } catch {
    return [];
  }
}

// One item as an owner sees it; undefined if it is gone, or another's.
async function read(href) {
  try {
    return (await ask(href)).items[0];
  } catch (fault) {
    if (fault instanceof Refusal && [403, 404].includes(fault.status)) return undefined;
    throw fault;
  }
}

// All that the item waits for, all that waits for it, and what else these wait for: at most so many items and requests.
async function gather(start) {
  const found = new Map();
  let [asked, cut] = [0, false];
  const put = (queue, id, state) => {
    const key = JSON.stringify([queue, id]);
    if (!found.has(key) && found.size < MOST) found.set(key, {queue, id, state, parents: new Set()});
    cut ||= !found.has(key);
    return found.get(key);
  };
  const look = (href) => {
    cut ||= asked === MOST;
    asked += asked < MOST;
    return cut ? undefined : read(href);
  };

  async function up(parent) {
    if (parent.asked || parent.record) return;
    parent.asked = true;
    const record = await look(`${path("surveys", parent.queue)}?item=${encodeURIComponent(parent.id)}`);
    if (record) await follow(record, false);
    else parent.state = "unknown";
  }

  async function down({href}, waited) {
    const record = await look(href);
    // What waited may be gone: then the list goes on with another item.
    const waits = record && parentsOf(record).some(({node, item}) => item === waited.id && (node ?? record.queue) === waited.queue);
    if (waits) await follow(record, true);
  }

  async function follow(record, descends) {
    const here = put(record.queue, record.id, record.state);
    if (!here || here.record) return;
    Object.assign(here, {record, state: record.state});
    const steps = [];
    for (const {node, item, state} of parentsOf(record)) {
      const parent = put(node ?? record.queue, item, state);
      if (parent) here.parents.add(parent);
      if (parent && state === "awaited") steps.push(up(parent));
    }
    if (descends) steps.push(...(record.awaited_by ?? []).map((child) => down(child, record)));
    await Promise.all(steps);
  }

  await follow(start, true);
  return {items: [...found.values()], cut};
}

// How far below the first ones. Nobody can wait in a circle.
function layer(one) {
  one.layer ??= 1 + Math.max(-1, ...[...one.parents].map(layer));
  return one.layer;
}

function card(one, start, open) {
  const here = one.queue === start.queue && one.id === start.id;
  const name = one.record && !here
    ? make("button", {type: "button", class: "link", onclick: () => open(one.record)}, one.id) : make("span", {}, one.id);
  const state = make("span");
  badge(state, one.state);
  const waits = [...one.parents].map(({id}) => id).join(", ");
  one.card = make("li", {"aria-current": here && "true"}, name, make("small", {}, one.queue === start.queue ? "" : one.queue), state,
    make("span", {class: "mute"}, waits && `, waits for ${waits}`));
  return one.card;
}

function draw(svg, items) {
  const room = svg.parentElement.getBoundingClientRect();
  const lines = items.flatMap(({card: below, parents}) => [...parents].map(({card: above}) => {
    const [from, to] = [above.getBoundingClientRect(), below.getBoundingClientRect()];
    const line = document.createElementNS(SVG, "path");
    const [x, y, u, v] = [from.x + from.width / 2 - room.x, from.bottom - room.y, to.x + to.width / 2 - room.x, to.y - room.y];
    line.setAttribute("d", `M${x},${y} C${x},${(y + v) / 2} ${u},${(y + v) / 2} ${u},${v}`);
    return line;
  }));
  svg.replaceChildren(...lines);
}

// Show it in a section of the item's dialog, if there is anything; `open` opens another item.
export async function showFlow(section, start, open) {
  section.hidden = !(parentsOf(start).length || start.awaited_by);
  if (section.hidden) return;
  const {items, cut} = await gather(start);
  const layers = [];
  for (const one of items) (layers[layer(one)] ??= []).push(one);
  const [list, svg] = [section.querySelector("ol"), section.querySelector("svg")];
  list.replaceChildren(...layers.map((those) => make("li", {}, make("ul", {}, ...those.map((one) => card(one, start, open))))));
  section.querySelector(".more").hidden = !cut;
  section.querySelector(".more").textContent = `There are more than these ${counted(items.length, "item")}.`;
  new ResizeObserver(() => draw(svg, items)).observe(list);
}
