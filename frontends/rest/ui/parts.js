// The parts of a queue that are lists: each reads its records from the API, and runs the actions of its buttons.

import {ask, path, Refusal} from "./api.js";
import {confirmFirst, headers} from "./dialogs.js";
import {badge, clock, counted, fillCell, fromTemplate, keep, keepTable, make, number, since, write} from "./dom.js";
import {began, carries, due, fillCarries, opener, PREVIEW} from "./item.js";
import {linkTo} from "./queues.js";
import {search, WAYS} from "./search.js";
import {cancelItems, chooser, choosing, nameOf, redriveItems} from "./several.js";

const PAGE = 50;
const FORBIDDEN = "Only the queue's owners and the service's administrators see this.";

// Dead letters are shown under the ids that they had where they died.
const DEAD_HINT = "id, key=…, header=NAME=VALUE or reason=…";
const DEAD_WAYS = {...WAYS, id: "header=stanzaq-dead-item%3D"};

// What tells a record from all others: partitions may have items of the same id, and a JID several subscriptions.
function keyOf({id, partition, jid, subid, name}) {
  return [id, partition, jid, subid, name].filter((each) => each !== undefined).join(" ");
}

// A list from a template: `read` returns its records, `row` and `fill` show one.
export function list(template, {read, row, fill}) {
  const root = make("div", {}, fromTemplate(template));
  const empty = root.querySelector(".empty");
  const words = empty.textContent;
  const more = root.querySelector(".more");
  return {
    root,
    async refresh() {
      let records = [];
      let why = words;
      try {
        records = await read();
      } catch (fault) {
        if (!(fault instanceof Refusal) || ![400, 403, 404, 410, 501].includes(fault.status)) throw fault;
        why = fault.status === 403 ? FORBIDDEN : fault.message;
        if (more) more.hidden = true;
      }
      keepTable(root.querySelector("table"), records, keyOf, row, fill);
      root.querySelector(".wide").hidden = !records.length;
      // Those to show may all be on later pages.
      empty.hidden = records.length > 0 || more?.hidden === false;
      write(empty, why);
      return records;
    },
    fill() {},
  };
}

// How many items a queue holds.
function held(queue) {
  return queue && queue.counts.waiting + queue.counts.in_flight;
}

export function cell(kind, ...inside) {
  return make("td", {class: kind}, ...inside);
}

// A button of a row; screen readers also read the row's name.
export function button(words, thing, onclick) {
  return make("button", {type: "button", onclick}, words, make("span", {class: "mute"}, ` ${thing}`));
}

// Pages of items as an owner sees them, and the button that shows more.
function survey(name, more, renew) {
  let pages = 1;
  more.addEventListener("click", () => {
    pages += 1;
    renew();
  });
  return async () => {
    const items = [];
    let next = `${path("surveys", name())}?limit=${PAGE}&preview=${PREVIEW}`;
    for (let page = 0; page < pages && next; page += 1) {
      const said = await ask(next);
      items.push(...said.items);
      next = said.next;
    }
    more.hidden = !next;
    return items;
  };
}

// What lists of items have in common: pages and search. `node` is their node, `shows` tells which of its items belong here; `hint` is
// what can be looked for.
function searched(template, {node, total, renew, hint = "id, key=… or header=NAME=VALUE", ways = WAYS, shows = () => true}, shown) {
  const part = list(template, {
    ...shown,
    read: async () => (node() ? (await found() ?? await read()).filter(shows) : []),
  });
  part.root.querySelector("h2").after(fromTemplate("search"));
  part.root.querySelector("[role=search] input").placeholder = hint;
  const found = search(part.root, node, total, renew, ways);
  const read = survey(node, part.root.querySelector(".more"), renew);
  return part;
}

export function itemsPart(name, {queue, act, renew}) {
  const release = (item) => act(async () => {
    await ask(path("releases", name), {method: "POST", body: {items: [item.id]}});
    return `The lock of ${item.id} is ended: it goes to the next worker.`;
  });
  const remove = (item) => confirmFirst({
    title: `Delete ${item.id}?`, words: `It waits in ${name}. Nobody will work on it.`, button: "Delete the item",
  }, async () => {
    await ask(item.href, {method: "DELETE"});
    act(async () => `${item.id} is deleted.`);
  });
  const cancel = (item) => confirmFirst({
    title: `Cancel ${item.id}?`, words: `${item.lock?.holder} works on it, and is told to stop. Nobody else will work on it.`,
    button: "Cancel the item",
  }, async () => {
    const said = await cancelItems(name, [item]);
    act(async () => said);
  });
  const part = searched("items", {node: () => name, total: () => held(queue()), renew}, {
    row: (item) => make("tr", {},
      make("th", {scope: "row"}, chooser(item.id), opener(item.id, act), make("small")),
      cell("state", make("span"), make("small")), carries(), cell("n"), cell("n"),
      cell("text"), cell("text"),
      cell("do", button("Release", item.id, () => release(item)), button("Cancel", item.id, () => cancel(item)),
        button("Delete", item.id, () => remove(item)))),
    fill: (row, item) => {
      const [head, state, payload, tries, old, holder, publisher, does] = row.children;
      write(head.lastChild, item.group_key && `key ${item.group_key}`);
      badge(state.firstChild, item.state);
      write(state.lastChild, due(item));
      fillCarries(payload, item);
      write(tries, number(item.attempts));
      write(old, since(item.published));
      fillCell(holder, item.lock?.holder);
      write(publisher, item.publisher);
      does.firstChild.hidden = does.children[1].hidden = !item.lock;
      does.lastChild.hidden = !["waiting", "delayed", "dependent"].includes(item.state);
    },
  });
  choosing(part, [["Cancel chosen", (items) => confirmFirst({
    title: `Cancel ${counted(items.length, "item")}?`, button: "Cancel them",
    words: `Nobody will work on them any more. Workers hold ${number(items.filter(({lock}) => lock).length)} of them, and are told to stop.`,
  }, async () => {
    const said = await cancelItems(name, items);
    act(async () => said);
  })]]);
  return part;
}

export function entriesPart(name, {queue, act, renew}) {
  return searched("entries", {node: () => name, total: () => queue()?.counts.kept, renew}, {
    row: (item) => make("tr", {},
      make("th", {scope: "row"}, opener(item.id, act)), carries(), cell("n"), cell("n"), cell("text"), cell("text"), cell("text")),
    fill: (row, item) => {
      const [, payload, old, size, kind, key, publisher] = row.children;
      fillCarries(payload, item);
      write(old, since(item.published));
      write(size, number(item.bytes));
      write(kind, item.content_type);
      fillCell(key, item.group_key);
      write(publisher, item.publisher);
    },
  });
}

export function deadPart(name, {queue, act, say, renew}) {
  // The dead letter queue of another queue shows its own items. Several queues may share one.
  const letters = () => (queue()?.lettersOf ? name : queue()?.dead_letters);
  const shows = ({died}) => died && (letters() === name || died.node === name);
  const total = () => (letters() === name ? held(queue()) : queue()?.dead);
  const part = searched("dead", {node: letters, total, renew, hint: DEAD_HINT, ways: DEAD_WAYS, shows}, {
    row: (item) => {
      const id = nameOf(item);
      return make("tr", {},
        make("th", {scope: "row"}, chooser(id), opener(id, act), make("small")), cell("text"), carries(), cell("n"), cell("n"), cell("text"), cell("text"),
        cell("do", button("Redrive", id, () => act(async () => {
          const said = await ask(path("redrives", name), {method: "POST", body: {items: [item.id]}});
          return said.moved ? `${id} is on its way back to ${item.died.node}.` : stayed(said.stayed);
        }))));
    },
    fill: (row, item) => {
      const {died, published} = item;
      const [head, reason, payload, tries, old, node, holder] = row.children;
      write(head.lastChild, item.group_key && `key ${item.group_key}`);
      fillCell(reason, died.reason);
      fillCarries(payload, item);
      write(tries, died.attempts);
      write(old, since(published));
      write(node, died.node);
      fillCell(holder, died.holder);
    },
  });
  choosing(part, [
    ["Redrive chosen", (items) => act(() => redriveItems(name, items))],
    ["Drop chosen", (items) => confirmFirst({
      title: `Drop ${counted(items.length, "dead letter")}?`, words: "They will be gone for ever.", button: "Drop them",
    }, async () => {
      const said = await cancelItems(letters(), items, "is dropped", "are dropped");
      act(async () => said);
    })],
  ]);
  const find = (selector) => part.root.querySelector(selector);
  const [choice, header, stop, progress] = [find("select"), find("[name=header]"), find(".stop"), find(".progress")];
  let stopped = false;
  stop.addEventListener("click", () => {
    stopped = true;
  });
  find(".redrive").addEventListener("submit", (event) => {
    event.preventDefault();
    if (stop.hidden) redrive();
  });

  // In steps, so that progress is visible and it can be stopped.
  async function redrive() {
    const left = {};
    let [moved, scan] = [0, ""];
    stopped = false;
    stop.hidden = false;
    try {
      const which = {};
      if (choice.value) which.reason = choice.value;
      if (header.value.trim()) which.headers = headers(header.value);
      if (!Object.keys(which).length) which.all = true;
      do {
        const said = await ask(path("redrives", name), {method: "POST", body: scan ? {...which, scan} : which});
        moved += said.moved;
        for (const [why, count] of Object.entries(said.stayed)) left[why] = (left[why] ?? 0) + count;
        scan = said.scan;
        write(progress, `${number(moved)} on the way`);
      } while (scan && !stopped);
      say(`${counted(moved, "dead letter")} on the way back${stopped ? ", the rest stays" : ""}. ${stayed(left)}`.trim());
    } catch (fault) {
      say(fault.message);
    }
    stop.hidden = true;
    await renew();
  }

  const {refresh} = part;
  part.refresh = async () => {
    const shown = await refresh();
    const [chosen, reasons] = [choice.value, shown.map(({died}) => died.reason)];
    // What is chosen stays so when its last letter is gone: the empty reason means everything.
    keep(choice, new Set(["", ...reasons, chosen]), (each) => each, (each) => make("option", {value: each}), (option, each) => write(option, each || "anything"));
    choice.value = chosen;
    find(".redrive").hidden = !find(".empty").hidden && stop.hidden;
  };
  return part;
}

export function endsPart(name) {
  return list("ends", {
    read: async () => (await ask(`${path("ends", name)}?limit=${PAGE}&preview=${PREVIEW}`)).ends,
    row: ({id}) => make("tr", {}, make("th", {scope: "row"}, id), cell("state", make("span"), make("small")), cell("text carries", make("span")), cell("n")),
    fill: (row, {state, reason, result, expires}) => {
      const [, how, carried, until] = row.children;
      badge(how.firstChild, state);
      write(how.lastChild, reason);
      write(carried.firstChild, result ? began(result) : "–");
      write(until, clock(expires));
    },
  });
}

export function subscribersPart(name, {act}) {
  const part = list("subscribers", {
    async read() {
      const {subscribers, more} = await ask(path("subscribers", name));
      part.root.querySelector(".more").hidden = !more;
      return subscribers;
    },
    row: ({jid}) => make("tr", {},
      make("th", {scope: "row"}, jid, make("small")), cell("state"), cell("n"), cell("n"),
      cell("do", button("Release all", `that ${jid} holds`, () => act(async () => {
        const {released} = await ask(path("releases", name), {method: "POST", body: {holder: jid}});
        return `${counted(released, "lock")} of ${jid} ended: what it held goes to others.`;
      })))),
    fill: (row, {client, credit, held}) => {
      const [head, busy, has, holds, does] = row.children;
      write(head.lastChild, client);
      write(busy, held === 0 ? "idle" : held < credit ? "working" : "full");
      write(has, number(credit));
      write(holds, number(held));
      does.firstChild.hidden = !held;
    },
  });
  return part;
}

export function childrenPart(name) {
  return list("children", {
    read: async () => (await ask(path("queues", name))).children,
    row: (child) => make("tr", {},
      make("th", {scope: "row"}, make("a", {href: linkTo(child.name)}, child.name)), cell("state")),
    fill: (row, child) => write(row.lastChild, child.is_queue ? "queue or log" : "collection"),
  });
}

function stayed(reasons) {
  return Object.entries(reasons).map(([why, count]) => `${number(count)} stayed: ${why}.`).join(" ");
}
