// One queue: what it holds, how it flows, and its parts: items, dead letters, subscribers.

import {ask, path} from "./api.js";
import {age, badge, figures, fromTemplate, make, number, rate, write} from "./dom.js";
import {deadPart, itemsPart, subscribersPart} from "./parts.js";
import {linkTo, stateOf} from "./queues.js";
import {draw, recent} from "./rates.js";

const PARTS = {items: itemsPart, dead: deadPart, subscribers: subscribersPart};

export function queueView(name, section, {queues, say, renew}) {
  const root = make("div", {}, fromTemplate("queue"));
  const find = (selector) => root.querySelector(selector);
  write(find("h1"), name);
  for (const tab of root.querySelectorAll(".tabs a")) {
    tab.href = linkTo(name, tab.dataset.part);
    if (tab.dataset.part === section) tab.setAttribute("aria-current", "page");
  }
  for (const button of root.querySelectorAll(".actions button")) {
    button.addEventListener("click", () => act(say, renew, async () => {
      const {state} = button.dataset;
      await ask(path("queues", name), {method: "PATCH", body: {options: {"stanzaq#state": state}}});
      return `${name} is ${state}.`;
    }));
  }
  const queue = () => queues().find((each) => each.name === name);
  const part = PARTS[section](name, {queue, say, renew, act: (work) => act(say, renew, work)});
  find(".part").append(part.root);

  function fill() {
    const found = queue();
    find(".actions").hidden = found?.standing !== "owner" || found.type === "collection";
    find(".badge").hidden = find(".figures").hidden = !found;
    if (found) {
      badge(find(".badge"), stateOf(found));
      for (const button of root.querySelectorAll(".actions button")) button.disabled = button.dataset.state === found.state;
      write(find(".about"), about(found));
      figures(find(".figures"), told(found));
    }
    const top = draw(find("svg"), name);
    const {come, gone} = recent(name);
    find("svg").setAttribute("aria-label", `Each second ${rate(come)} came in and ${rate(gone)} were done`);
    write(find("figcaption b"), `${rate(top)} a second`);
    part.fill();
  }

  return {root, title: name, fill, refresh: part.refresh};
}

// Do something that was asked for by a button, and tell how it went.
async function act(say, renew, work) {
  try {
    say(await work());
  } catch (fault) {
    say(fault.message);
  }
  await renew();
}

function about(queue) {
  const told = [queue.title];
  if (queue.lettersOf) told.push(`dead letters of ${queue.lettersOf}`);
  if (queue.parent) told.push(`in ${queue.parent}`);
  if (queue.partitions > 1) told.push(`${queue.partitions} partitions`);
  told.push(`you are ${queue.standing}`);
  return told.filter(Boolean).join(" · ");
}

function told({name, counts}) {
  const {come, gone} = recent(name);
  return [
    ["Waiting", number(counts.waiting)], ["Delayed", number(counts.delayed)], ["In flight", number(counts.in_flight)],
    ["Oldest", age(counts.oldest_ms)], ["In /s", rate(come)], ["Done /s", rate(gone)], ["Workers", number(counts.subscribers)],
    ["Free credit", number(counts.credit_free)], ["Tries ever", number(counts.attempts)], ["Done ever", number(counts.finished)],
  ];
}
