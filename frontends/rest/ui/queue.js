// One queue, log or collection: its counts, its rates, its actions, and its parts.

import {accessPart} from "./access.js";
import {ask, path} from "./api.js";
import {confirmFirst, publishItem} from "./dialogs.js";
import {age, badge, bytes, counted, figures, fromTemplate, make, number, rate, write} from "./dom.js";
import {hourPart} from "./hour.js";
import {childrenPart, deadPart, endsPart, entriesPart, itemsPart, subscribersPart} from "./parts.js";
import {kindOf, linkTo, stateOf} from "./queues.js";
import {draw, recent} from "./rates.js";
import {schedulesPart} from "./schedules.js";
import {settingsPart} from "./settings.js";

// The parts of each kind, in order: the name in the address, the title, and the function that shows it.
const PARTS = {
  queue: {
    items: ["Items", itemsPart], dead: ["Dead letters", deadPart], ends: ["Finished", endsPart], subscribers: ["Subscribers", subscribersPart],
    schedules: ["Schedules", schedulesPart], hour: ["History", hourPart], access: ["Access", accessPart], settings: ["Settings", settingsPart],
  },
  log: {
    items: ["Entries", entriesPart], subscribers: ["Readers", subscribersPart], schedules: ["Schedules", schedulesPart],
    hour: ["History", hourPart], access: ["Access", accessPart], settings: ["Settings", settingsPart],
  },
  collection: {
    children: ["Contains", childrenPart], subscribers: ["Subscribers", subscribersPart],
    access: ["Access", accessPart], settings: ["Settings", settingsPart],
  },
};

export function queueView(name, section, {queues, say, renew, go}) {
  const root = make("div", {}, fromTemplate("queue"));
  const find = (selector) => root.querySelector(selector);
  const queue = () => queues().find((each) => each.name === name);
  write(find("h1"), name);

  // Run the action of a button and report the result.
  async function act(work, refused = say) {
    try {
      say(await work());
    } catch (fault) {
      refused(fault.message);
    }
    await renew();
  }

  for (const button of root.querySelectorAll(".states button")) {
    button.addEventListener("click", () => act(async () => {
      const {state} = button.dataset;
      await ask(path("queues", name), {method: "PATCH", body: {options: {"stanzaq#state": state}}});
      return `${name} is ${state}.`;
    }));
  }
  find(".publish").addEventListener("click", () => publishItem(name, (words) => act(async () => words)));
  find(".purge").addEventListener("click", () => confirmFirst({
    title: `Purge ${name}?`, words: lost(queue()), button: "Purge it",
  }, async () => {
    await ask(path("purges", name), {method: "POST"});
    act(async () => `${name} is purged.`);
  }));
  find(".delete").addEventListener("click", () => confirmFirst({
    title: `Delete ${name}?`, words: `${lost(queue())} Its subscriptions end, and its settings are gone.`, button: "Delete it",
  }, async () => {
    await ask(path("queues", name), {method: "DELETE"});
    go("#/", `${name} is deleted.`);
  }));

  // The service tells the kind. If it does not tell this user, assume a queue, the most likely kind.
  let [part, kind] = [null, ""];
  function showPart() {
    const found = queue();
    const told = found ? kindOf(found) : kind || "queue";
    if (told === kind) return;
    kind = told;
    const parts = PARTS[kind];
    const shown = parts[section] ? section : Object.keys(parts)[0];
    find(".tabs").replaceChildren(...Object.entries(parts).map(([each, [words]]) =>
      make("a", {href: linkTo(name, each), "data-part": each, "aria-current": each === shown && "page"}, words)));
    part = parts[shown][1](name, {queue, act, say, renew});
    find(".part").replaceChildren(part.root);
  }

  function fill() {
    const found = queue();
    if (found) showPart();
    const leaf = found && kind !== "collection";
    find(".actions").hidden = find(".badge").hidden = !found;
    find(".figures").hidden = find(".chart").hidden = find(".publish").hidden = !leaf;
    find(".owners").hidden = !["owner", "operator"].includes(found?.standing);
    find(".states").hidden = find(".purge").hidden = !leaf;
    if (found) {
      badge(find(".badge"), stateOf(found));
      for (const button of root.querySelectorAll(".states button")) button.setAttribute("aria-pressed", String(button.dataset.state === found.state));
      write(find(".about"), about(found));
      figures(find(".figures"), FIGURES[kind](found));
    }
    find(".chart .out").hidden = kind === "log";
    const top = draw(find(".chart svg"), name);
    const {come, gone} = recent(name);
    find(".chart svg").setAttribute("aria-label", `Each second ${rate(come)} came in and ${rate(gone)} were done`);
    write(find(".chart b"), `${rate(top)} a second`);
    part?.fill();
  }

  return {
    root,
    title: name,
    fill,
    async refresh() {
      showPart();
      await part.refresh();
    },
  };
}

// A sentence about what is lost with the queue's content.
function lost(queue) {
  if (kindOf(queue) === "collection") return "What it contains stays, and belongs to no collection any more.";
  const {kept, waiting} = queue.counts;
  if (kindOf(queue) === "log") return `${counted(kept, "entry", "entries")} will be gone for ever.`;
  return `${counted(waiting, "waiting item")} will be gone for ever.`;
}

function about(queue) {
  const told = [queue.title];
  if (kindOf(queue) === "log") told.push("every reader gets every entry");
  if (queue.lettersOf) told.push(`dead letters of ${queue.lettersOf}`);
  if (queue.parent) told.push(`in ${queue.parent}`);
  if (queue.partitions > 1) told.push(`${queue.partitions} partitions`);
  told.push(`you are ${queue.standing}`);
  return told.filter(Boolean).join(" · ");
}

// Items that wait for a time, and if there are any, those that wait for others.
const delayed = (counts) => number(counts.delayed) + (counts.dependent ? ` + ${number(counts.dependent)} for others` : "");

// Items that workers have acknowledged, and if there are any, those that went in another way.
const done = (counts) => number(counts.finished) + (counts.removed ? ` + ${number(counts.removed)} removed` : "");

// Multiples of three and six, so that the grid has no gaps.
const FIGURES = {
  queue({name, counts, dead}) {
    const {come, gone} = recent(name);
    return [
      ["Waiting", number(counts.waiting)], ["Ready", number(counts.eligible)], ["Delayed", delayed(counts)],
      ["In flight", number(counts.in_flight)], ["Oldest", age(counts.oldest_ms)], ["Dead letters", dead === undefined ? "–" : number(dead)],
      ["In /s", rate(come)], ["Done /s", rate(gone)], ["Workers", number(counts.subscribers)],
      ["Free credit", number(counts.credit_free)], ["Tries ever", number(counts.attempts)], ["Done ever", done(counts)],
    ];
  },
  log({name, counts, partitions}) {
    return [
      ["Entries", number(counts.kept)], ["Size", bytes(counts.kept_bytes)], ["In /s", rate(recent(name).come)],
      ["Readers", number(counts.subscribers)], ["Partitions", number(partitions)], ["Came ever", number(counts.published)],
    ];
  },
  collection: () => [],
};
