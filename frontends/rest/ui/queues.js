// The table of all queues, logs and collections.

import {createQueue} from "./dialogs.js";
import {age, badge, counted, figures, fromTemplate, keepTable, make, number, rate, write} from "./dom.js";
import {draw, recent, sparkline} from "./rates.js";

// Kept while the page is open, so that the table looks the same on return.
const order = {by: "name", down: false};
let part = "";

export function linkTo(name, section = "") {
  return `#/queue/${encodeURIComponent(name)}${section && `/${section}`}`;
}

export function kindOf(queue) {
  return queue.type === "collection" ? "collection" : queue.queueing ? "queue" : "log";
}

// The state, or the kind where the state is the usual one.
export function stateOf(queue) {
  const kind = kindOf(queue);
  return kind === "collection" || (kind === "log" && queue.state === "running") ? kind : queue.state;
}

export function queuesView({queues, total, go}) {
  const root = make("div", {}, fromTemplate("queues"));
  const find = (selector) => root.querySelector(selector);
  const search = find("input");
  search.value = part;
  search.addEventListener("input", () => {
    part = search.value;
    fill();
  });
  find("form").addEventListener("submit", (event) => event.preventDefault());
  find(".create").addEventListener("click", () => createQueue(queues, (name) => go(linkTo(name), `${name} is made.`)));
  for (const button of root.querySelectorAll("thead button")) {
    button.addEventListener("click", () => {
      const {by} = button.closest("th").dataset;
      // Numbers are sorted from the largest.
      order.down = order.by === by ? !order.down : by !== "name" && by !== "state";
      order.by = by;
      fill();
    });
  }

  function fill() {
    const all = queues();
    const found = all.filter((each) => each.name.toLowerCase().includes(part.toLowerCase())).sort(compare);
    for (const head of root.querySelectorAll("thead th[data-by]")) {
      if (head.dataset.by !== order.by) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    }
    figures(find(".figures"), totals(all));
    keepTable(find("table"), found, (each) => each.name, row, fillRow);
    const shown = found.length === all.length ? kinds(all) : `${number(found.length)} of ${number(all.length)}`;
    write(find(".count"), total() > all.length ? `${shown}; there are ${number(total())}` : shown);
    const empty = find(".empty");
    empty.hidden = found.length > 0;
    write(empty, all.length ? "No queue has such a name." : "There is no queue that you may look at yet.");
    find(".wide").hidden = find(".key").hidden = !found.length;
  }

  return {root, title: "Queues", fill};
}

function kinds(all) {
  const told = ["queue", "log", "collection"].map((kind) => [all.filter((each) => kindOf(each) === kind).length, kind]);
  return told.filter(([count, kind]) => count || kind === "queue").map(([count, kind]) => counted(count, kind)).join(", ");
}

function compare(one, other) {
  const value = (each) => ({name: each.name, state: stateOf(each), dead: each.dead ?? -1, ...recent(each.name)})[order.by] ?? each.counts[order.by] ?? -1;
  const [a, b] = [value(one), value(other)];
  const found = typeof a === "string" ? a.localeCompare(b) : a - b;
  return (order.down ? -found : found) || one.name.localeCompare(other.name);
}

function totals(all) {
  const sum = (what) => all.reduce((total, each) => total + each.counts[what], 0);
  const rates = all.map((each) => recent(each.name));
  const flow = (what) => (rates.some((each) => each[what] !== null) ? rates.reduce((total, each) => total + (each[what] ?? 0), 0) : null);
  const letters = new Set(all.map((each) => each.dead_letters));
  const dead = all.filter((each) => letters.has(each.name)).reduce((total, each) => total + each.counts.waiting, 0);
  return [
    ["Waiting", number(sum("waiting"))], ["In flight", number(sum("in_flight"))], ["In /s", rate(flow("come"))],
    ["Done /s", rate(flow("gone"))], ["Dead letters", number(dead)],
    ["Longest wait", age(Math.max(0, ...all.filter((each) => !letters.has(each.name)).map((each) => each.counts.oldest_ms)))],
  ];
}

function row(queue) {
  const cells = [0, 1, 2, 3, 4].map(() => make("td", {class: "n"}));
  return make("tr", {},
    make("th", {scope: "row"}, make("a", {href: linkTo(queue.name)}, queue.name), make("small")),
    make("td", {class: "state"}, make("span")), ...cells, make("td", {class: "n"}), make("td", {class: "n"}),
    make("td", {class: "spark"}, sparkline()));
}

function fillRow(found, queue) {
  const [name, state, ...cells] = found.children;
  write(name.lastChild, queue.lettersOf ? `dead letters of ${queue.lettersOf}` : queue.title);
  badge(state.firstChild, stateOf(queue));
  const kind = kindOf(queue);
  const {waiting, in_flight: inFlight, oldest_ms: oldest, subscribers} = queue.counts;
  const {come, gone} = recent(queue.name);
  // Entries of a log do not wait, and a collection has none.
  const told = [number(waiting), number(inFlight), age(oldest), rate(come), rate(gone)];
  const has = {queue: [0, 1, 2, 3, 4], log: [3], collection: []}[kind];
  told.forEach((text, index) => write(cells[index], has.includes(index) ? text : "–"));
  write(cells[5], number(subscribers));
  draw(cells[7].firstChild, queue.name);
  const dead = cells[6];
  if (!queue.dead) return write(dead, queue.dead === undefined ? "–" : "0");
  if (dead.firstElementChild) return write(dead.firstElementChild, number(queue.dead));
  return dead.replaceChildren(make("a", {href: linkTo(queue.name, "dead")}, number(queue.dead)));
}
