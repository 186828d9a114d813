// The last hour of a queue or a log, by minute, from samples kept by the service: reloading the page loses none.

import {ask, path} from "./api.js";
import {age, clock, figures, fromTemplate, make, number, rate, write} from "./dom.js";
import {kindOf} from "./queues.js";
import {plot} from "./rates.js";

const MINUTE_MS = 60_000;
const MINUTES = 60;
const SPAN_MS = MINUTES * MINUTE_MS;
// A newer sample may exist after this time.
const AGAIN_MS = 10_000;

export function hourPart(name, {queue}) {
  const root = make("div", {}, fromTemplate("hour"));
  const find = (selector) => root.querySelector(selector);
  let readAt = -AGAIN_MS;

  async function refresh() {
    if (performance.now() - readAt < AGAIN_MS) return;
    readAt = performance.now();
    let [samples, why] = [null, ""];
    try {
      ({samples} = await ask(path("histories", name)));
    } catch (fault) {
      if (![403, 404].includes(fault.status)) throw fault;
      why = fault.message;
    }
    find(".figures").hidden = find(".charts").hidden = !samples;
    find(".empty").hidden = Boolean(samples);
    write(find(".empty"), why);
    if (!samples) return;
    const known = samples.map((each) => ({...each, now: Date.parse(each.at)}));
    const found = queue();
    const log = found !== undefined && kindOf(found) === "log";
    const minutes = byMinute(known);
    const until = known.at(-1).now;
    const told = (log ? ofLog : ofQueue)(known, minutes);
    find(".figures").classList.toggle("few", log);
    figures(find(".figures"), told);
    find(".levels").hidden = find(".out").hidden = log;
    for (const [chart, line, area] of [[".flow", "come", "gone"], [".levels", "in_flight", "waiting"]]) {
      const top = plot(find(`${chart} svg`), minutes, {until, span: SPAN_MS, line, area: log ? line : area});
      write(find(`${chart} b`), chart === ".flow" ? `${rate(top)} a minute` : number(top));
      write(find(`${chart} .from`), clock(until - SPAN_MS));
      write(find(`${chart} .to`), clock(until));
      find(`${chart} svg`).setAttribute("aria-label", told.map(([label, value]) => `${label}: ${value}`).join(", "));
    }
  }

  return {root, refresh, fill() {}};
}

// Items published, completed and present in each minute, as far back as is known.
function byMinute(known) {
  const [first, until] = [known[0], known.at(-1).now];
  const found = first.now > until - SPAN_MS ? [{...first, come: 0, gone: 0}] : [];
  for (let end = until - SPAN_MS + MINUTE_MS; end <= until; end += MINUTE_MS) {
    const [from, to] = [stateAt(known, end - MINUTE_MS) ?? first, stateAt(known, end)];
    if (!to) continue;
    const grown = (what) => Math.max(0, to[what] - from[what]);
    found.push({now: end, come: grown("published"), gone: grown("finished"), waiting: to.waiting, in_flight: to.in_flight});
  }
  return found;
}

// The counts at a time. Changes between two samples are taken to be in the minute before the later one.
function stateAt(known, at) {
  const later = known.findIndex((each) => each.now >= at);
  const [before, after] = [known[later - 1], known[later]];
  if (!before) return after.now === at ? after : null;
  const part = 1 - (after.now - at) / Math.min(MINUTE_MS, after.now - before.now);
  if (part <= 0) return before;
  const between = (what) => before[what] + part * (after[what] - before[what]);
  return {...after, published: between("published"), finished: between("finished")};
}

function grown(known, what) {
  const began = stateAt(known, known.at(-1).now - SPAN_MS) ?? known[0];
  return Math.max(0, Math.round(known.at(-1)[what] - began[what]));
}

function ofQueue(known) {
  const most = (what) => Math.max(...known.map((each) => each[what]));
  return [
    ["Came in", number(grown(known, "published"))], ["Done", number(grown(known, "finished"))], ["Tries", number(grown(known, "attempts"))],
    ["Most waiting", number(most("waiting"))], ["Most in flight", number(most("in_flight"))], ["Longest wait", age(most("oldest_ms"))],
  ];
}

function ofLog(known, minutes) {
  const come = grown(known, "published");
  return [
    ["Came in", number(come)], ["Per minute", rate(come / Math.max(1, minutes.length))],
    ["Busiest minute", number(Math.round(Math.max(0, ...minutes.map((each) => each.come))))],
  ];
}
