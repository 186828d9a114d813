// The search of a list of items: one field, and requests until a page is found or all is seen. The service does the looking.

import {ask, path, Refusal} from "./api.js";
import {number, write} from "./dom.js";
import {PREVIEW} from "./item.js";

// Items that are enough at once, and those that one answer may have.
const ENOUGH = 50;
const STEP = 200;

// What each word before `=` asks of the service; without one it is an id.
export const WAYS = {id: "item=", key: "group_key=", header: "header=", reason: "reason="};

function question(text, ways) {
  const [, way, value] = text.match(/^(id|key|header|reason)=(.*)$/) ?? ["", "id", text];
  return ways[way] + encodeURIComponent(value);
}

// The search form of a list of the node `node()`, which has `total()` items. `read` returns the items found, undefined without a search.
export function search(root, node, total, renew, ways) {
  const find = (selector) => root.querySelector(selector);
  const [form, all, more] = [find("[role=search]"), find(".all"), find(".more")];
  const [field, told] = [form.querySelector("input"), form.querySelector(".found")];
  let current = null;

  function tell() {
    const {found, examined} = current;
    const of = total() > examined ? ` of ${number(total())}` : "";
    write(told, `${number(found)} found in ${number(examined)}${of}`);
  }

  // Look on until a page more is found; another search ends this one.
  async function look() {
    const mine = current;
    if (mine.looks) return;
    mine.looks = true;
    const enough = mine.found + ENOUGH;
    try {
      while (mine === current && mine.next && mine.found < enough) {
        const {items, examined, next} = await ask(mine.next);
        // Where there was something, and at the end, there may be something else later.
        if (items.length || !next) mine.places.push(mine.next);
        mine.found += items.length;
        mine.examined += examined;
        mine.next = next;
        if (mine === current) tell();
      }
    } catch (fault) {
      mine.fault = fault;
    }
    mine.looks = false;
    if (mine === current) renew();
  }

  function begin(text) {
    field.value = text;
    all.hidden = !text;
    write(told, "");
    const next = text && `${path("surveys", node())}?limit=${STEP}&preview=${PREVIEW}&${question(text, ways)}`;
    current = text ? {text, next, places: [], found: 0, examined: 0} : null;
    if (current) look();
    else renew();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    begin(field.value.trim());
  });
  all.addEventListener("click", () => begin(""));
  more.addEventListener("click", () => current && look());
  return async () => {
    if (!current) return undefined;
    const {text, fault, places, next} = current;
    more.hidden = !next;
    if (fault) throw fault;
    const items = [];
    for (const place of places) items.push(...(await ask(place)).items);
    if (!items.length && !next) throw new Refusal(404, `${node()} has no item ${text}: it is done, or was never there.`);
    return items;
  };
}
