// The quotas of owners and domains with what is used of them, and the form that sets one. Only administrators see it.

import {ask} from "./api.js";
import {confirmFirst, openDialog} from "./dialogs.js";
import {bytes, make, number, write} from "./dom.js";
import {button, cell, list} from "./parts.js";

const WORDS = {nodes: number, partitions: number, items: number, bytes};

export function quotasView({say, renew}) {
  const place = (subject) => `quotas/${encodeURIComponent(subject)}`;
  const done = (words) => {
    say(words);
    renew();
  };
  const change = (subject, limits = {}) => {
    const dialog = openDialog("quota", async (said) => {
      const body = Object.fromEntries(Object.entries(said).filter(([name, text]) => name !== "subject" && text));
      await ask(place(said.subject), {method: "PUT", body});
      done(`The quota of ${said.subject} is set.`);
    });
    for (const [name, value] of Object.entries({subject, ...limits})) dialog.querySelector(`[name=${name}]`).value = value;
  };
  const part = list("quotas", {
    read: async () => (await ask("quotas")).quotas.map((each) => ({name: each.subject, ...each})),
    row: ({name}) => {
      const row = make("tr", {}, make("th", {scope: "row"}, name), cell("n"), cell("n"), cell("n"), cell("n"), cell("n"), cell("do",
        button("Change", name, () => change(name, JSON.parse(row.dataset.limits))),
        button("Clear", name, () => confirmFirst({
          title: `Clear the quota of ${name}?`, words: "Nothing is deleted. For an owner the default quota holds again.", button: "Clear it",
        }, async () => {
          await ask(place(name), {method: "DELETE"});
          done(`The quota of ${name} is cleared.`);
        }))));
      return row;
    },
    fill: (row, {limits, used}) => {
      row.dataset.limits = JSON.stringify(limits);
      Object.entries(WORDS).forEach(([name, words], index) => {
        const [has, most] = [used[name], limits[name]].map((each) => each !== undefined && words(each));
        write(row.children[index + 1], has && most ? `${has} of ${most}` : has || most || "–");
        row.children[index + 1].classList.toggle("over", used[name] >= limits[name]);
      });
      write(row.children[5], limits.publish_rate ?? "–");
    },
  });
  part.root.querySelector(".add").addEventListener("click", () => change(""));
  return {...part, title: "Quotas"};
}
