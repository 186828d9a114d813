// Who may use a queue: affiliations of accounts, domains and groups of tokens, which owners give and take, and who waits for an owner's approval.

import {ask, path} from "./api.js";
import {confirmFirst, openDialog} from "./dialogs.js";
import {make, write} from "./dom.js";
import {button, cell, list} from "./parts.js";

function holder(jid) {
  if (jid.startsWith("group:")) return "the group";
  return jid.includes("@") ? "the account" : "accounts of the domain";
}

export function accessPart(name, {act}) {
  const give = (jid, affiliation) => ask(path("affiliations", name), {method: "PATCH", body: {affiliations: {[jid]: affiliation}}});
  const change = (known = {}) => {
    const dialog = openDialog("affiliation", async ({jid, affiliation}) => {
      await give(jid, affiliation);
      act(async () => `The affiliation of ${jid} is ${affiliation}.`);
    });
    write(dialog.querySelector("h2 b"), name);
    for (const [field, value] of Object.entries(known)) dialog.querySelector(`[name=${field}]`).value = value;
  };
  const affiliations = list("affiliations", {
    read: async () => Object.entries((await ask(path("affiliations", name))).affiliations).map(([jid, affiliation]) => ({jid, affiliation})),
    row: ({jid}) => {
      const row = make("tr", {}, make("th", {scope: "row"}, jid), cell("text"), cell("text"), cell("do",
        button("Change", jid, () => change({jid, affiliation: row.children[2].textContent})),
        button("Remove", jid, () => confirmFirst({
          title: `Remove ${jid}?`, words: `Whom ${name} does not admit any more loses subscriptions and locks at once.`, button: "Remove it",
        }, async () => {
          await give(jid, "none");
          act(async () => `The affiliation of ${jid} is removed.`);
        }))));
      return row;
    },
    fill: ({children: [, holds, affiliation]}, told) => {
      write(holds, holder(told.jid));
      write(affiliation, told.affiliation);
    },
  });
  const add = affiliations.root.querySelector(".add");
  add.addEventListener("click", () => change());
  const decide = (jid, allow) => act(async () => {
    await ask(path("requests", name), {method: "POST", body: {jid, allow}});
    return `${jid} is ${allow ? "approved" : "denied"}.`;
  });
  const requests = list("requests", {
    read: async () => (await ask(path("requests", name))).requests,
    row: ({jid}) => make("tr", {}, make("th", {scope: "row"}, jid),
      cell("do", button("Approve", jid, () => decide(jid, true)), button("Deny", jid, () => decide(jid, false)))),
    fill() {},
  });
  return {
    root: make("div", {}, affiliations.root, requests.root),
    async refresh() {
      // Every queue has an owner: who sees none may not see them, nor who waits.
      add.hidden = requests.root.hidden = !(await affiliations.refresh()).length;
      if (!add.hidden) await requests.refresh();
    },
    fill() {},
  };
}
