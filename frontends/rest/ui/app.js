// The page: which view is shown, when it is refreshed, who is signed in. It has no state that is not in the API.

import {ask, signedIn, signIn, signOut} from "./api.js";
import {closeDialogs} from "./dialogs.js";
import {badge, fromTemplate, keepTable, make, number, write} from "./dom.js";
import {queueView} from "./queue.js";
import {queuesView} from "./queues.js";
import {quotasView} from "./quotas.js";
import {feed, forget} from "./rates.js";
import {arrive, leave, offered, signedOn, signOff} from "./sign-on.js";

const LOOK_MS = 2_000;
// A refresh costs Redis a little for each queue: refreshes take at most a tenth of the time, and this many pages.
const IDLE_PARTS = 9;
const PAGES = 4;
const DEAD_AFTER_MS = 2_000;
const DOORS = {xmpp: "XMPP", rest: "HTTP", amqp: "AMQP"};
const SAID_MS = 8_000;

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const pauseUpdates = document.getElementById("pause-updates");
const user = document.getElementById("user");
const said = document.getElementById("said");

const NOTHING = {queues: [], total: 0};
let overview = NOTHING;
let view = null;
let timer = 0;
let turn = 0;
let silence = 0;
let news = "";

// Messages for screen readers and everybody else: completed actions and problems, but not changing numbers.
function say(words) {
  write(said, words);
  clearTimeout(silence);
  silence = setTimeout(() => write(said, ""), SAID_MS);
}

function mood(name, words) {
  if (name === "away" && connection.dataset.mood !== "away") say(words);
  connection.dataset.mood = name;
  write(connection, words);
  main.classList.toggle("stale", name === "away");
}

// Read what there is.
async function look() {
  let [queues, total, next] = [[], 0, "overview?limit=500"];
  for (let page = 0; page < PAGES && next; page += 1) {
    const found = await ask(next);
    queues = queues.concat(found.queues);
    ({total, next} = found);
  }
  return {queues, total};
}

// Show this from now on, and forget what was there before.
function accept({queues, total}) {
  const now = performance.now();
  const byName = new Map(queues.map((each) => [each.name, each]));
  for (const each of queues) {
    feed(each.name, each.counts, now);
    const letters = each.dead_letters && byName.get(each.dead_letters);
    if (each.dead_letters) each.dead = letters ? letters.counts.waiting + letters.counts.in_flight : 0;
    if (letters) letters.lettersOf = each.name;
  }
  forget(byName);
  overview = {queues, total};
}

// Cancel the refresh that is due or under way.
function cancel() {
  clearTimeout(timer);
  turn += 1;
}

// One refresh at a time; a later call cancels an earlier one.
async function renew() {
  cancel();
  const mine = turn;
  const began = performance.now();
  try {
    const found = await look();
    if (mine !== turn) return;
    accept(found);
    await view?.refresh?.();
    if (mine !== turn) return;
    view?.fill();
    const time = new Date().toLocaleTimeString("en-GB");
    mood(paused() ? "paused" : "well", paused() ? `paused at ${time}` : `live, ${time}`);
  } catch (fault) {
    if (mine !== turn) return;
    if (fault.status === 401) return door(signedIn() ? fault.message : "");
    if (fault.status === 403) return trouble("You may not look at this", fault.message);
    if (fault.status === undefined) {
      mood("away", "this page has failed: load it again");
      throw fault;
    }
    mood("away", fault.status === 0 ? "the service does not answer: trying again" : `trying again: ${fault.message}`);
  }
  if (!paused()) timer = setTimeout(renew, Math.max(LOOK_MS, IDLE_PARTS * (performance.now() - began)));
}

function paused() {
  return pauseUpdates.getAttribute("aria-pressed") === "true";
}

// Messages and dialogs belong to the previous page.
function show(next) {
  closeDialogs();
  say("");
  view = next;
  main.replaceChildren(next.root);
  // Who is not signed in may be admitted too.
  user.hidden = false;
  write(user, signedIn() ? "Sign out" : "Sign in");
  document.title = `${next.title} – stanzaq`;
}

// Nothing of the user who leaves stays.
function door(why) {
  cancel();
  signOut();
  accept(NOTHING);
  mood("waiting", "not signed in");
  const root = make("div", {}, fromTemplate("door"));
  const form = root.querySelector("form");
  write(root.querySelector(".why"), why || "Say who you are: the API's passwords and tokens are taken here too.");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    signIn(Object.fromEntries(new FormData(form)));
    route();
  });
  offerSignOn(root, form);
  show({root, title: "Sign in", fill() {}});
  user.hidden = true;
  if (why) say(why);
  form.elements.jid.focus();
}

// Offer to sign in at the provider, if there is one.
async function offerSignOn(root, form) {
  const host = await offered().catch(() => "");
  if (!host) return;
  const button = make("button", {type: "button", class: "main sign-on"}, `Sign in at ${host}`);
  button.addEventListener("click", () => leave().catch(({message}) => write(root.querySelector(".why"), `Nobody could sign you in: ${message}.`)));
  form.before(button);
  button.focus();
}

function trouble(title, why) {
  mood("waiting", "nothing to show");
  const root = make("div", {}, fromTemplate("trouble"));
  write(root.querySelector("h1"), title);
  write(root.querySelector(".why"), why);
  show({root, title, fill() {}});
}

function frontendsView() {
  const root = make("div", {}, fromTemplate("frontends"));
  const empty = root.querySelector(".empty");
  return {
    root,
    title: "Frontends",
    async refresh() {
      let found = [];
      try {
        found = (await ask("frontends")).frontends;
      } catch (fault) {
        if (fault.status !== 403) throw fault;
        write(empty, "Only administrators of the service see them.");
      }
      keepTable(root.querySelector("table"), found, (each) => each.name,
        ({name}) => make("tr", {}, make("th", {scope: "row"}, name), make("td", {class: "state"}, make("span")), make("td", {class: "word"}), make("td", {class: "n"})),
        (row, each) => {
          badge(row.children[1].firstChild, each.disconnected_by ? "ending" : each.heard_ms < DEAD_AFTER_MS ? "alive" : "dead");
          write(row.children[2], DOORS[each.door] ?? each.door);
          write(row.children[3], `${number(Math.round(each.heard_ms / 100) / 10)} s ago`);
        });
      root.querySelector(".wide").hidden = !found.length;
      empty.hidden = found.length > 0;
    },
    fill() {},
  };
}

function route() {
  const [place, name, section] = location.hash.replace(/^#\/?/, "").split("/");
  const shared = {queues: () => overview.queues, total: () => overview.total, say, renew, go};
  if (place === "frontends") show(frontendsView());
  else if (place === "quotas") show(quotasView(shared));
  else if (place === "queue" && name) show(queueView(decoded(name), section, shared));
  else show(queuesView(shared));
  for (const link of document.querySelectorAll(".bar nav a")) {
    if (link.hash === (["frontends", "quotas"].includes(place) ? `#/${place}` : "#/")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  view.fill();
  say(news);
  news = "";
  renew();
}

// Show another page, with a message about the completed action.
function go(hash, words) {
  news = words;
  location.hash = hash;
}

// A typed name need not be escaped.
function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

addEventListener("hashchange", () => {
  // The link that skips to the content is not a page.
  if (location.hash === "#main") return main.focus();
  const tab = document.activeElement?.closest(".tabs") && document.activeElement.dataset.part;
  route();
  // Keyboard users continue from here.
  (tab ? main.querySelector(`.tabs [data-part="${tab}"]`) : main.querySelector("h1"))?.focus();
});
pauseUpdates.addEventListener("click", () => {
  pauseUpdates.setAttribute("aria-pressed", String(!paused()));
  renew();
});
user.addEventListener("click", () => {
  const off = signedOn() && signOff().catch(() => say("You are signed out here, but not at the provider."));
  door(off || signedIn() ? "You are signed out." : "");
});

async function begin() {
  try {
    await arrive();
  } catch ({message}) {
    return door(`Nobody could sign you in: ${message}.`);
  }
  route();
}

begin();
