// Several items of a list at once: check boxes, and what is done with those chosen. Each that fails is told by its id.

import {ask, path} from "./api.js";
import {counted, make, number, recordOf, write} from "./dom.js";

// Items that one request takes.
const MOST = 100;

export function chooser(id) {
  return make("input", {type: "checkbox", "aria-label": `Choose ${id}`});
}

// Add check boxes to a list: `actions` has a button's words and its work with the records of the checked rows.
export function choosing(part, actions) {
  const bar = part.root.querySelector(".chosen");
  const [every, count] = [bar.querySelector(".every"), bar.querySelector(".count")];
  const boxes = () => [...part.root.querySelectorAll("tbody input[type=checkbox]")];
  const buttons = actions.map(([words, work]) => make("button", {
    type: "button", onclick: () => work(boxes().filter(({checked}) => checked).map(recordOf)),
  }, words));
  bar.append(...buttons);

  function tell() {
    const [all, chosen] = [boxes().length, boxes().filter(({checked}) => checked).length];
    bar.hidden = !all;
    every.checked = all > 0 && chosen === all;
    every.indeterminate = chosen > 0 && chosen < all;
    write(count, chosen ? `${number(chosen)} chosen` : "");
    for (const button of buttons) button.hidden = !chosen;
  }

  part.root.addEventListener("change", ({target}) => {
    if (target === every) for (const box of boxes()) box.checked = every.checked;
    tell();
  });
  const {refresh} = part;
  part.refresh = async () => {
    const shown = await refresh();
    tell();
    return shown;
  };
}

function* pages(items) {
  for (let first = 0; first < items.length; first += MOST) yield items.slice(first, first + MOST);
}

export function nameOf({id, died}) {
  return died?.item || id;
}

// Say in one sentence what became of items: `failed` has the reason of each that failed by its id.
function report(items, done, failed, is, are) {
  const why = failed.map(([id, reason]) => `${id} is not: ${reason}`).join("; ");
  if (items.length === 1) return done ? `${nameOf(items[0])} ${is}.` : why || `${nameOf(items[0])} is not there any more.`;
  const what = `${number(done)} of ${counted(items.length, "item")} ${done === 1 ? is : are}`;
  return why ? `${what}; ${why}` : `${what}.`;
}

// Cancel items, waiting or held, and say what became of them: one `is`, several `are` gone.
export async function cancelItems(queue, items, is = "is cancelled", are = "are cancelled") {
  const failed = [];
  for (const page of pages(items)) {
    const {results} = await ask(path("cancellations", queue), {method: "POST", body: {items: page.map(({id}) => id)}});
    results.forEach(({status, detail}, index) => {
      if (status >= 400) failed.push([nameOf(page[index]), detail]);
    });
  }
  return report(items, items.length - failed.length, failed, is, are);
}

// Redrive dead letters and say what became of them.
export async function redriveItems(queue, items) {
  const redrive = (those) => ask(path("redrives", queue), {method: "POST", body: {items: those.map(({id}) => id)}});
  const failed = [];
  let done = 0;
  for (const page of pages(items)) {
    const {moved} = await redrive(page);
    done += moved;
    // The answer only counts those that stay: each that is asked for again tells why.
    for (const one of moved < page.length ? page : []) {
      const again = await redrive([one]);
      done += again.moved;
      for (const why of Object.keys(again.stayed)) failed.push([nameOf(one), why]);
    }
  }
  return report(items, done, failed, "is on its way back", "are on their way back");
}
