// Dialogs: a question before anything is destroyed, and the forms that create a queue and publish an item.

import {ask, path} from "./api.js";
import {fromTemplate, make, write} from "./dom.js";

let made = 0;

// Open a dialog from a template. `work` submits its form; a refusal is shown in the dialog.
export function openDialog(template, work) {
  made += 1;
  const dialog = make("dialog", {"aria-labelledby": `dialog-${made}`}, fromTemplate(template));
  dialog.querySelector("h2").id = `dialog-${made}`;
  dialog.addEventListener("close", () => dialog.remove());
  for (const button of dialog.querySelectorAll(".close")) button.addEventListener("click", () => dialog.close());
  dialog.querySelector("form")?.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(dialog, event.target, work);
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

// Dialogs close with their page.
export function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
}

async function submit(dialog, form, work) {
  const [why, button] = [form.querySelector("[role=alert]"), form.querySelector("[type=submit]")];
  if (button.disabled) return;
  button.disabled = true;
  write(why, "");
  try {
    await work(Object.fromEntries(new FormData(form)));
    dialog.close();
  } catch (fault) {
    write(why, fault.message);
  }
  button.disabled = false;
}

// Ask before `work` destroys something; the words say what will be lost.
export function confirmFirst({title, words, button}, work) {
  const dialog = openDialog("confirm", work);
  write(dialog.querySelector("h2"), title);
  write(dialog.querySelector(".about"), words);
  write(dialog.querySelector("[type=submit]"), button);
}

const KINDS = {queue: {}, log: {"pubsub#queueing": false}, collection: {"pubsub#node_type": "collection"}};

// Create a queue, a log or a collection, and pass on its name once it exists.
export function createQueue(queues, done) {
  openDialog("create", async ({name, title, kind}) => {
    if (queues().some((each) => each.name === name)) throw new Error(`There is a ${name} already.`);
    const options = title ? {...KINDS[kind], "pubsub#title": title} : KINDS[kind];
    await ask(path("queues", name), {method: "PUT", body: {options}});
    await done(name);
  });
}

// Publish one item and pass on the result. `fields` is what the form begins with; `drop` drops what the item is a copy of, if
// the user wants that, and returns what it has done.
export function publishItem(name, done, {fields = {}, drop} = {}) {
  const dialog = openDialog("publish", async (said) => {
    const {results: [result]} = await ask(path("batches", name), {method: "POST", body: [message(said)]});
    if (result.status >= 400) throw new Error(result.detail);
    // Only what is stored anew is dropped.
    const dropped = said.drop && !result.duplicate ? ` ${await drop().catch(({message: why}) => `The old one stays: ${why}`)}` : "";
    await done((result.duplicate ? `${result.id} was there before: nothing is changed.` : `${result.id} is published.`) + dropped);
  });
  write(dialog.querySelector("h2 b"), name);
  const {elements} = dialog.querySelector("form");
  for (const [field, value] of Object.entries(fields)) elements[field][elements[field].type === "checkbox" ? "checked" : "value"] = value;
  elements.drop.parentElement.hidden = !drop;
}

function message(said) {
  const made = {[said.base64 ? "base64" : "text"]: said.text, content_type: said.content_type, headers: headers(said.headers)};
  for (const name of ["guid", "group_key"]) if (said[name]) made[name] = said[name];
  for (const name of ["delay", "priority", "ttl"]) if (said[name]) made[name] = Number(said[name]);
  return made;
}

// Read headers, a line each.
export function headers(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  return Object.fromEntries(lines.map((line) => {
    const [, name, value] = line.match(/^([^:]+?)\s*:\s*(.*)$/) ?? [];
    if (!name) throw new Error(`“${line}” is no header: write NAME: TEXT.`);
    return [name, value];
  }));
}
