// A producer and consumers of a log, by npm's rhea. Knows the Event Stream Extensions for AMQP; nothing of this project.
// Usage: with_rhea.mjs NODE_MODULES PORT USER PASSWORD NODE. Writes what happened as one JSON object.
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, port, username, password, node] = process.argv.slice(2);
const rhea = createRequire(join(modules, "_"))("rhea");
const { types } = rhea;

const ANNOTATIONS = "amqp:event-streams-delivery-annotations-filter";
const SQL = "amqp:event-streams-sql-filter";
const did = {};
let links = 0;

const connection = rhea.create_container({ id: "rhea" })
  .connect({ host: "127.0.0.1", port, username, password, reconnect: false });
connection.on("connection_error", (context) => { console.error(context.connection.error); process.exit(1); });
connection.on("disconnected", () => process.exit(1));
// Each is heard by whoever asks for it.
for (const event of ["receiver_error", "sender_error", "rejected"]) connection.on(event, () => {});

const once = (who, event) => new Promise((resolve) => { who.once(event, resolve); });
const at = (values) =>
  ({ [ANNOTATIONS]: types.wrap_described(types.wrap_symbolic_map(values), types.wrap_symbol(ANNOTATIONS)) });
const sql = (text) => ({ [SQL]: types.wrap_described(text, types.wrap_symbol(SQL)) });
const offset = (text) => at({ "event-streams-offset": types.wrap_symbol(text) });

// Attaches a receiver that takes nothing yet; gives it, or the condition by which it is refused.
const attached = async (filter, properties = {}, address = node) => {
  const receiver = connection.open_receiver(
    { name: `r${links += 1}`, source: { address, filter }, properties, credit_window: 0 });
  receiver.found = [];
  receiver.on("message", (context) => { receiver.found.push(context.message); receiver.emit("found"); });
  const [link, error] = await Promise.race([
    once(receiver, "receiver_open").then(() => [receiver, undefined]),
    once(receiver, "receiver_error").then(() => [undefined, receiver.error.condition]),
  ]);
  // A refusal is an attach without a source, and then the end.
  if (error) return error;
  if (!link.remote.attach.source?.address) {
    if (!link.error) await once(receiver, "receiver_error");
    return receiver.error.condition;
  }
  return link;
};
const taken = async (receiver, count) => {
  receiver.add_credit(count);
  while (receiver.found.length < count) await once(receiver, "found");
  return receiver.found.splice(0, count);
};
const texts = (messages) => messages.map(({ body }) => (body.content ?? body).toString());
const offsets = (messages) => messages.map((each) => each.delivery_annotations["event-streams-offset"]);

const sender = connection.open_sender({ target: { address: node } });
await once(sender, "sendable");
const sent = (message) => {
  sender.send(message);
  return Promise.race([
    once(sender, "accepted").then(() => "accepted"),
    once(sender, "rejected").then(({ delivery }) => delivery.remote_state.error.condition),
  ]);
};

did.sent = [];
for (const body of ["a", "b", "c", "d"]) {
  const data = rhea.message.data_section(Buffer.from(body));
  did.sent.push(await sent({ body: data, content_type: "text/plain", application_properties: { size: 12 } }));
}
did.sent.push(await sent({ body: "e", message_annotations: { "event-streams-group-key": "k" } }));
did.elsewhere = await sent({ body: "x", delivery_annotations: { "event-streams-partition": types.wrap_symbol("9") } });

const first = await attached(offset("@earliest"));
const begun = await taken(first, 2);
did.begun = texts(begun);
did.told = [begun[0].content_type, begun[0].application_properties.size, Object.keys(begun[0].delivery_annotations).sort()];
const [, second] = offsets(begun);
first.close();

did.after = texts(await taken(await attached(sql(`d.event-streams-offset > '${second}'`)), 3));
did.from = texts(await taken(await attached(offset(second)), 4));
did.keyed = texts(await taken(await attached(sql("m.event-streams-group-key = 'k'")), 1));

const owned = (epoch) => attached(offset("@earliest"),
  { "event-streams-consumer-group": "g", "event-streams-epoch": types.wrap_long(epoch) });
const owner = await owned(3);
did.owned = texts(await taken(owner, 1));
did.same_epoch = await owned(3);
const stolen = once(owner, "receiver_error");
const thief = await owned(4);
await stolen;
did.stolen = [owner.error.condition, thief.remote.attach.properties["event-streams-epoch"], ...texts(await taken(thief, 1))];

did.refused = [
  await attached(offset("@earliest"), {}, "nowhere"),
  await attached(offset("@earliest"), { "event-streams-partition": types.wrap_symbol("9") }),
  await attached(offset("a4c5")),
  await attached({ x: types.wrap_described("x", types.wrap_symbol("x:no-such-filter")) }),
];

const drained = await attached(offset("@earliest"));
drained.drain = true;
drained.add_credit(20);
await once(drained, "receiver_drained");
did.drained = [texts(drained.found), drained.credit];

console.log(JSON.stringify(did));
connection.removeAllListeners("disconnected");
connection.close();
