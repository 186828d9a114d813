// A publisher and a worker in one, by npm's @xmpp/client. Knows XEP-0060 and XEP-0254; nothing of this project.
// Usage: with_xmpp_client.mjs NODE_MODULES PORT DOMAIN SERVICE NODE. Writes what happened as one JSON object.
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, port, domain, service, node] = process.argv.slice(2);
const entry = createRequire(join(modules, "_")).resolve("@xmpp/client");
const { client, xml } = await import(pathToFileURL(entry));

const PUBSUB = "http://jabber.org/protocol/pubsub";
const QUEUEING = "urn:xmpp:pubsub:queueing:0";
const DISCO = "http://jabber.org/protocol/disco#items";
const RSM = "http://jabber.org/protocol/rsm";
const did = {};

const field = (name, value) => xml("field", { var: name }, xml("value", {}, value));
const form = (kind, fields) =>
  xml("x", { xmlns: "jabber:x:data", type: "submit" }, field("FORM_TYPE", `${PUBSUB}#${kind}`),
    ...Object.entries(fields).map(([name, value]) => field(name, value)));

const xmpp = client({ service: `xmpp://127.0.0.1:${port}`, domain });
const news = [];
let heard = () => {};
xmpp.on("error", (error) => { console.error(error); process.exit(1); });
xmpp.on("stanza", (stanza) => {
  if (stanza.is("message") && stanza.getChild("event", `${PUBSUB}#event`)) {
    news.push(stanza);
    heard();
  }
});
const next = async () => {
  while (!news.length) await new Promise((resolve) => { heard = resolve; });
  return news.shift().getChild("event").children.find((child) => child.name);
};
const asked = (kind, ...inside) =>
  xmpp.iqCaller.request(xml("iq", { type: kind, to: service }, ...inside), 20_000);
const pubsub = (kind, ...inside) => asked(kind, xml("pubsub", { xmlns: PUBSUB }, ...inside));
const owner = (kind, ...inside) => asked(kind, xml("pubsub", { xmlns: `${PUBSUB}#owner` }, ...inside));
const job = (id) => xml("publish", { node }, xml("item", { id }, xml("job", { xmlns: "urn:x" }, "a < b & 'c'")));
const options = (fields) => xml("options", {}, form("subscribe_options", fields));

const jid = await xmpp.start();
await xmpp.send(xml("presence", { to: service }));

await pubsub("set", xml("create", { node }));
await owner("set", xml("configure", { node }, form("node_config", { "pubsub#title": "Jobs" })));
const configured = await owner("get", xml("configure", { node }));
did.title = configured.getChild("pubsub").getChild("configure").getChild("x").getChildren("field")
  .find((each) => each.attrs.var === "pubsub#title").getChildText("value");
await owner("set", xml("affiliations", { node }, xml("affiliation", { jid: "friend@localhost", affiliation: "publisher" })));
const listed = await owner("get", xml("affiliations", { node }));
did.affiliations = listed.getChild("pubsub").getChild("affiliations").getChildren("affiliation")
  .map((each) => each.attrs.affiliation).sort();
const page = await asked("get", xml("query", { xmlns: DISCO }, xml("set", { xmlns: RSM }, xml("max", {}, "500"), xml("before"))));
did.listed = page.getChild("query").getChildren("item").some((each) => each.attrs.node === node);
did.counted = Number(page.getChild("query").getChild("set").getChildText("count")) >= 1;

for (const id of ["i1", "i2", "i3"]) await pubsub("set", job(id));
did.browsed = [];
let after = [];
for (;;) {
  const part = await pubsub("get", xml("items", { node }), xml("set", { xmlns: RSM }, xml("max", {}, "2"), ...after));
  const items = part.getChild("pubsub").getChild("items").getChildren("item");
  if (!items.length) break;
  did.browsed.push(items.map((each) => each.attrs.id));
  after = [xml("after", {}, part.getChild("pubsub").getChild("set").getChildText("last"))];
}

const subscribe = xml("subscribe", { node, jid: jid.toString() });
try {
  await pubsub("set", subscribe);
} catch (error) {
  did.without_options = error.condition;
}
const expire = new Date(Date.now() + 3_600_000).toISOString();
const granted = await pubsub("set", subscribe, options({ "pubsub#queue_requests": "1", "pubsub#expire": expire }));
did.leased = granted.getChild("pubsub").getChild("subscription").attrs.expiry === expire;
const delivery = await next();
did.delivered = [delivery.getChild("item").attrs.id, delivery.getChild("item").getChildText("job")];
await pubsub("set", xml("unlock", { xmlns: QUEUEING, node }, xml("item", { id: "i1" })));
did.unlocked = (await next()).children.find((child) => child.name).name;
did.again = (await next()).getChild("item").attrs.id;
await pubsub("set", xml("retract", { node }, xml("item", { id: "i1" })));
did.retracted = (await next()).getChild("retract").attrs.id;
did.next = (await next()).getChild("item").attrs.id;
await owner("set", xml("configure", { node }, form("node_config", { "pubsub#notify_config": "1" })));
did.reconfigured = (await next()).name;
await owner("set", xml("delete", { node }, xml("redirect", { uri: `xmpp:${service}?;node=other` })));
const gone = await next();
did.deleted = [gone.name, gone.getChild("redirect").attrs.uri];
await xmpp.stop();
process.stdout.write(JSON.stringify(did));
