// A worker in JavaScript, on @xmpp/client: it subscribes with credit, works on items and acknowledges them.
//
// $ npm install @xmpp/client@0.14
// $ node js_worker.mjs
import { client, xml } from "@xmpp/client";

const QUEUE = "queue.localhost", NODE = "jobs", CREDIT = "5";
const PUBSUB = "http://jabber.org/protocol/pubsub", STANZAQ = "urn:stanzaq:0";
const xmpp = client({ service: "xmpp://127.0.0.1:5222", domain: "localhost", username: "worker", password: "secret" });

const ask = (...payload) => xmpp.iqCaller.request(xml("iq", { type: "set", to: QUEUE }, ...payload), 30_000);
const field = (name, value) => xml("field", { var: name }, xml("value", {}, value));
const item = (lock) => xml("item", { id: lock.item, token: lock.token });

async function subscribe(jid) {
  // The queue sees by its presence whether this worker is online.
  await xmpp.send(xml("presence", { to: QUEUE }));
  const form = xml("x", { xmlns: "jabber:x:data", type: "submit" },
    field("FORM_TYPE", `${PUBSUB}#subscribe_options`), field("pubsub#queue_requests", CREDIT));
  await ask(xml("pubsub", { xmlns: PUBSUB },
    xml("subscribe", { node: NODE, jid: jid.toString() }), xml("options", {}, form)));
}

async function work(lock, payload) {
  // A lock lasts for the queue's lock time; renew it while the work takes longer.
  const renewing = setInterval(() => ask(xml("renew", { xmlns: STANZAQ, node: NODE }, item(lock))).catch(console.error), 20_000);
  try {
    console.log("working on", payload.file);
    await ask(xml("pubsub", { xmlns: PUBSUB }, xml("retract", { node: NODE }, item(lock))));
  } catch (error) {
    // Another worker gets the item, after a while.
    const hint = xml("hint", { xmlns: STANZAQ, delay: "10", reason: String(error) });
    await ask(xml("pubsub", { xmlns: PUBSUB }, xml("unlock", { xmlns: "urn:xmpp:pubsub:queueing:0", node: NODE }, item(lock), hint)));
  } finally {
    clearInterval(renewing);
  }
}

xmpp.on("error", console.error);
// Also after each reconnect.
xmpp.on("online", (jid) => subscribe(jid).catch(console.error));
xmpp.on("stanza", (stanza) => {
  const lock = stanza.is("message") && stanza.getChild("lock", STANZAQ);
  if (!lock) return;
  const json = stanza.getChild("event", `${PUBSUB}#event`).getChild("items").getChild("item").getChildText("json", "urn:xmpp:json:0");
  work(lock.attrs, JSON.parse(json)).catch(console.error);
});
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, async () => { await xmpp.stop(); process.exit(); });
await xmpp.start();
