// The schedules of a queue or log: a list with buttons to pause, resume and delete them, and the form that makes one.

import {ask, path, segment} from "./api.js";
import {confirmFirst, openDialog} from "./dialogs.js";
import {clock, fillCell, make, number, write} from "./dom.js";
import {button, cell, list} from "./parts.js";

const WORDS = ["cron", "zone", "every", "start", "end", "jitter", "overlap", "catchup"];

export function schedulesPart(name, {act}) {
  const one = (id) => `${path("schedule", name)}/${segment(id)}`;
  const part = list("schedules", {
    async read() {
      const found = [];
      let next = path("schedules", name);
      while (next) {
        const said = await ask(next);
        found.push(...said.schedules);
        next = said.next;
      }
      return found;
    },
    row: ({id}) => {
      const row = make("tr", {},
        make("th", {scope: "row"}, id), cell("text"), cell("state"), cell("text"), cell("text"), cell("n"), cell("n"),
        cell("do",
          button("Pause", id, () => act(async () => {
            const paused = row.dataset.state !== "paused";
            const said = await ask(one(id), {method: "PATCH", body: {paused}});
            return `${id} is ${said.state}.`;
          })),
          button("Delete", id, () => confirmFirst({
            title: `Delete the schedule ${id}?`, words: "What it has published stays.", button: "Delete it",
          }, async () => {
            await ask(one(id), {method: "DELETE"});
            act(async () => `${id} is deleted.`);
          }))));
      return row;
    },
    fill: (row, told) => {
      const [, when, state, next, last, published, missed, does] = row.children;
      row.dataset.state = told.state;
      write(when, told.cron ? `${told.cron} ${told.zone}` : `every ${told.every}`);
      write(state, told.state);
      fillCell(next, told.next && clock(told.next));
      fillCell(last, told.last && clock(told.last));
      write(published, number(told.published));
      write(missed, number(told.missed + told.skipped));
      write(does.firstChild.firstChild, told.state === "paused" ? "Resume" : "Pause");
      does.firstChild.hidden = told.state === "ended";
    },
  });
  part.root.querySelector(".add").addEventListener("click", () => {
    const dialog = openDialog("schedule", async (said) => {
      const when = Object.fromEntries(WORDS.filter((each) => said[each]).map((each) => [each, said[each]]));
      const body = {...when, text: said.text, content_type: said.content_type};
      if (said.group_key) body.group_key = said.group_key;
      const made = await ask(one(said.id), {method: "PUT", body});
      await act(async () => `${made.id} is ${made.state}${made.next ? `, next at ${clock(made.next)}` : ""}.`);
    });
    write(dialog.querySelector("h2 b"), name);
  });
  return part;
}
