// One item in a dialog: its properties, its headers, and its payload, always as text.

import {ask} from "./api.js";
import {openDialog} from "./dialogs.js";
import {showFlow} from "./flow.js";
import {clock, counted, facts, figures, make, number, recordOf, since, write} from "./dom.js";

// The headers of dead letters have a section of their own.
const TOLD_APART = "stanzaq-dead-";

// A button that opens the item of its row, with the row's latest data.
export function opener(words) {
  return make("button", {type: "button", class: "link", onclick: ({currentTarget}) => openItem(recordOf(currentTarget))}, words);
}

// The time of an item's next automatic event.
export function due(item) {
  if (item.lock) return `until ${clock(item.lock.until)}`;
  return item.delayed_until ? `until ${clock(item.delayed_until)}` : "";
}

async function openItem(item) {
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
    openItem(other);
  }).catch((fault) => write(find(".waits .more"), fault.message));
  try {
    const said = await ask(item.href);
    write(find("pre"), said.text ?? `in base64:\n${said.base64}`);
  } catch (fault) {
    write(find("pre"), fault.message);
  }
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
