// The parts of a queue that are lists: each asks the API for what it shows, and does what its buttons say.

import {ask, path, Refusal} from "./api.js";
import {badge, counted, fromTemplate, keep, make, number, since, write} from "./dom.js";

const PAGE = 50;
const FORBIDDEN = "Only the queue's owners and the service's administrators see this.";

// A list out of a template: `read` gives its records, `row` and `fill` show one.
function list(template, {read, row, fill}) {
  const root = make("div", {}, fromTemplate(template));
  const empty = root.querySelector(".empty");
  const words = empty.textContent;
  const body = root.querySelector("tbody");
  return {
    root,
    async refresh() {
      let records = [];
      let why = words;
      try {
        records = await read();
      } catch (fault) {
        if (!(fault instanceof Refusal) || ![403, 404, 410, 501].includes(fault.status)) throw fault;
        why = fault.status === 403 ? FORBIDDEN : fault.message;
      }
      keep(body, records, (each) => each.id ?? each.jid, row, fill);
      root.querySelector(".wide").hidden = !records.length;
      empty.hidden = records.length > 0;
      write(empty, why);
    },
    fill() {},
  };
}

// Pages of items as their owner sees them, and the button that shows more of them.
function survey(name, more, renew) {
  let pages = 1;
  more.addEventListener("click", () => {
    pages += 1;
    renew();
  });
  return async () => {
    const items = [];
    let next = `${path("surveys", name())}?limit=${PAGE}`;
    for (let page = 0; page < pages && next; page += 1) {
      const said = await ask(next);
      items.push(...said.items);
      next = said.next;
    }
    more.hidden = !next;
    return items;
  };
}

export function itemsPart(name, {act, renew}) {
  const part = list("items", {
    read: () => read(),
    row: (item) => make("tr", {},
      make("th", {scope: "row"}, opener(item, item.id)), make("td", {}, make("span")), make("td", {class: "n"}), make("td", {class: "n"}),
      make("td", {class: "text"}), make("td", {class: "text"}),
      make("td", {}, make("button", {type: "button", onclick: () => act(async () => {
        await ask(path("releases", name), {method: "POST", body: {items: [item.id]}});
        return `The lock of ${item.id} is ended: it goes to the next worker.`;
      })}, "Release", make("span", {class: "mute"}, ` ${item.id}`)))),
    fill: (row, item) => {
      const [, state, tries, old, holder, publisher, does] = row.children;
      badge(state.firstChild, item.state);
      write(tries, number(item.attempts));
      write(old, since(item.published));
      write(holder, item.lock ? item.lock.holder : "–");
      write(publisher, item.publisher);
      does.firstChild.hidden = !item.lock;
    },
  });
  const read = survey(() => name, part.root.querySelector(".more"), renew);
  return part;
}

export function deadPart(name, {queue, act, say, renew}) {
  // A queue that dead letters of another one come to shows its own.
  const letters = () => (queue()?.lettersOf ? name : queue()?.dead_letters);
  const part = list("dead", {
    read: async () => (letters() ? (await read()).filter((item) => item.died) : []),
    row: (item) => make("tr", {},
      make("th", {scope: "row"}, opener(item, item.died.item || item.id)), make("td", {class: "text"}), make("td", {class: "n"}), make("td", {class: "text"}),
      make("td", {class: "text"}), make("td", {class: "n"}),
      make("td", {}, make("button", {type: "button", onclick: () => act(async () => {
        const said = await ask(path("redrives", letters()), {method: "POST", body: {items: [item.id]}});
        return said.moved ? `${item.died.item || item.id} is on its way back to ${item.died.node}.` : stayed(said.stayed);
      })}, "Redrive", make("span", {class: "mute"}, ` ${item.died.item || item.id}`)))),
    fill: (row, {died, published}) => {
      const [, reason, tries, node, holder, old] = row.children;
      write(reason, died.reason || "–");
      write(tries, died.attempts);
      write(node, died.node);
      write(holder, died.holder || "–");
      write(old, since(published));
    },
  });
  const find = (selector) => part.root.querySelector(selector);
  const read = survey(letters, find(".more"), renew);
  const [choice, stop, progress] = [find("select"), find(".stop"), find(".progress")];
  let stopped = false;
  stop.addEventListener("click", () => {
    stopped = true;
  });
  find("form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (stop.hidden) redrive();
  });

  // Step by step, so that it can be watched and stopped.
  async function redrive() {
    const which = choice.value ? {reason: choice.value} : {all: true};
    const left = {};
    let [moved, scan] = [0, ""];
    stopped = false;
    stop.hidden = false;
    try {
      do {
        const said = await ask(path("redrives", letters()), {method: "POST", body: scan ? {...which, scan} : which});
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
    await refresh();
    const reasons = [...new Set([...part.root.querySelectorAll("tbody tr")].map((row) => row.children[1].textContent))];
    keep(choice, ["", ...reasons.filter((each) => each !== "–")], (each) => each, (each) => make("option", {value: each}), (option, each) => write(option, each || "anything"));
    find("form").hidden = !part.root.querySelector("tbody tr") && stop.hidden;
  };
  return part;
}

export function subscribersPart(name, {act}) {
  return list("subscribers", {
    read: async () => (await ask(path("subscribers", name))).subscribers,
    row: ({jid}) => make("tr", {},
      make("th", {scope: "row"}, jid), make("td", {class: "n"}), make("td", {class: "n"}), make("td"),
      make("td", {}, make("button", {type: "button", onclick: () => act(async () => {
        const {released} = await ask(path("releases", name), {method: "POST", body: {holder: jid}});
        return `${counted(released, "lock")} of ${jid} ended: what it held goes to others.`;
      })}, "Release all", make("span", {class: "mute"}, ` that ${jid} holds`)))),
    fill: (row, {credit, held}) => {
      const [, has, holds, busy, does] = row.children;
      write(has, number(credit));
      write(holds, number(held));
      write(busy, held === 0 ? "idle" : held < credit ? "working" : "full");
      does.firstChild.hidden = !held;
    },
  });
}

function stayed(reasons) {
  return Object.entries(reasons).map(([why, count]) => `${number(count)} stayed: ${why}.`).join(" ");
}

// A button that shows what an item carries: as text, whatever it is.
function opener(item, words) {
  return make("button", {type: "button", class: "link", onclick: () => open(item)}, words);
}

async function open(item) {
  const dialog = document.getElementById("payload");
  const body = dialog.querySelector("pre");
  write(dialog.querySelector("h2"), item.id);
  write(dialog.querySelector(".about"), `${item.content_type}, ${number(item.bytes)} bytes, from ${item.publisher}`);
  write(body, "…");
  dialog.showModal();
  try {
    const said = await ask(item.href);
    write(body, said.text ?? `in base64:\n${said.base64}`);
  } catch (fault) {
    write(body, fault.message);
  }
}
