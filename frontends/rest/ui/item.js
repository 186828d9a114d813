// One item in a dialog: its properties, its headers, and its payload, always as text.

import {ask} from "./api.js";
import {openDialog, publishItem} from "./dialogs.js";
import {showFlow} from "./flow.js";
import {clock, counted, facts, figures, make, number, recordOf, since, write} from "./dom.js";
import {cancelItems} from "./several.js";

// Bytes of a payload that a list shows, and how many of its headers.
export const PREVIEW = 120;
const FEW = 3;
// The headers of dead letters have a section of their own.
const TOLD_APART = "stanzaq-dead-";
// Headers that the service sets, and that nobody publishes.
const SERVICE = /^(stanzaq-|pubsub#|traceparent$|tracestate$)/i;

// A button that opens the item of its row, with the row's latest data; `act` runs what is done with it there.
export function opener(words, act) {
  return make("button", {type: "button", class: "link", onclick: ({currentTarget}) => openItem(recordOf(currentTarget), act)}, words);
}

// A cell that shows the beginning of an item's payload, and some headers.
export function carries() {
  return make("td", {class: "text carries"}, make("span"), make("small"));
}

export function fillCarries(cell, item) {
  write(cell.firstChild, began(item));
  const headers = Object.entries(item.headers).filter(([name]) => !SERVICE.test(name));
  const more = headers.length > FEW ? ", …" : "";
  write(cell.lastChild, headers.slice(0, FEW).map(([name, text]) => `${name}: ${text}`).join(", ") + more);
}

// The beginning of a payload in one line; bytes that are no text are counted.
export function began({preview, content_type, bytes}) {
  if (preview === undefined) return `${content_type}, ${counted(bytes, "byte")}`;
  return (preview.replace(/\s+/g, " ").trim() || "nothing") + (bytes > PREVIEW ? "…" : "");
}

// The time of an item's next automatic event.
export function due(item) {
  if (item.lock) return `until ${clock(item.lock.until)}`;
  return item.delayed_until ? `until ${clock(item.delayed_until)}` : "";
}

async function openItem(item, act) {
  const dialog = openDialog("item");
  const find = (selector) => dialog.querySelector(selector);
  write(find("h2"), item.id);
  facts(find(".facts"), told(item));
  const headers = Object.entries(item.headers).filter(([name]) => !name.startsWith(TOLD_APART));
  find(".headers").hidden = !headers.length;
  figures(find(".headers dl"), headers);
  write(find("pre"), "…");
  showFlow(find(".waits"), item, (other) => {
    dialog.close();
    openItem(other, act);
  }).catch((fault) => write(find(".waits .more"), fault.message));
  try {
    const said = await ask(item.href);
    write(find("pre"), said.text ?? `in base64:\n${said.base64}`);
    const again = find(".again");
    again.hidden = false;
    again.addEventListener("click", () => {
      dialog.close();
      sendAgain(item, said, act);
    });
  } catch (fault) {
    write(find("pre"), fault.message);
  }
}

// Publish a copy of an item, which may be edited first; that of a dead letter goes to where it died.
function sendAgain(item, said, act) {
  const headers = Object.entries(item.headers).filter(([name]) => !SERVICE.test(name));
  const fields = {
    text: said.text ?? said.base64, base64: said.text === undefined, content_type: item.content_type, group_key: item.group_key,
    priority: item.priority, headers: headers.map((pair) => pair.join(": ")).join("\n"),
  };
  const drop = () => cancelItems(item.queue, [item], "is dropped", "are dropped");
  publishItem(item.died?.node ?? item.queue, (words) => act(async () => words), {fields, drop: item.died && drop});
}

function progress({share, note, at}) {
  return [share !== undefined && `${Math.round(100 * share)} %`, note, `at ${clock(at)}`].filter(Boolean).join(", ");
}

function listed(attempts = []) {
  return attempts.map(({ended, outcome, holder, reason}) => `${clock(ended)} ${outcome} by ${holder}${reason && `: ${reason}`}`).join("; ");
}

function told(item) {
  const {lock, died} = item;
  return [
    ["State", item.state],
    ["Published", `${clock(item.published)}, ${since(item.published)} ago, by ${item.publisher}`],
    ["Carries", `${item.content_type}, ${counted(item.bytes, "byte")}`],
    ["Group key", item.group_key],
    ["Due", item.delayed_until && clock(item.delayed_until)],
    ["Held by", lock?.holder],
    ["Lock ends", lock && clock(lock.until)],
    ["Progress", lock?.progress && progress(lock.progress)],
    ["Time to live ends", item.ends && clock(item.ends)],
    ["Priority", number(item.priority)],
    ["Tries", number(item.attempts)],
    ["Held before by", item.held_before_by.join(", ")],
    ["Died in", died && `${died.node}, after ${died.attempts} tries`],
    ["Died of", died?.reason],
    ["Died after", listed(died?.history)],
    ["Came back", listed(item.history)],
    ["Partition", number(item.partition)],
  ];
}
