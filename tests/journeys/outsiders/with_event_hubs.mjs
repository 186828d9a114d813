// Producers and consumers of a hub by npm's @azure/event-hubs. Knows Azure Event Hubs; nothing of this project.
// Usage: with_event_hubs.mjs NODE_MODULES CONNECTION_STRING COUNT KEY…. The hub has three partitions and COUNT events, all of them in
// partition 2. Writes what happened as one JSON object.
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, connection, before, ...keys] = process.argv.slice(2);
const {
  EventHubBufferedProducerClient, EventHubConsumerClient, EventHubProducerClient, earliestEventPosition, latestEventPosition,
} = createRequire(join(modules, "_"))("@azure/event-hubs");

const options = { retryOptions: { maxRetries: 0, timeoutInMs: 30_000 } };
const did = {};

// Receives from a partition, or from all, until there are so many events or something goes wrong: gives the events, or the error's code.
const received = (count, startPosition, { partition, during = async () => {}, ...more } = {}) => new Promise((resolve, reject) => {
  const client = new EventHubConsumerClient("$Default", connection, options);
  const events = [];
  let over = false;
  const end = async (result) => {
    if (over) return;
    over = true;
    clearTimeout(late);
    clearInterval(again);
    await subscription.close();
    await client.close();
    resolve(result);
  };
  let again;
  const late = setTimeout(() => reject(new Error(`${events.length} events of ${count}`)), 30_000);
  const handlers = {
    // Elsewhere than in the handler, which a close would wait for.
    processEvents: async (some) => { events.push(...some); if (events.length >= count) setTimeout(end, 0, events); },
    // Nothing says when the link is attached, so it is done until it has had its effect.
    processInitialize: async () => { again ??= setInterval(during, 300); },
    processError: async (error) => { setTimeout(end, 0, error.code); },
  };
  const wanted = { startPosition, maxWaitTimeInSeconds: 1, ...more };
  const subscription = partition ? client.subscribe(partition, handlers, wanted) : client.subscribe(handlers, wanted);
});
const bodies = (events) => (Array.isArray(events) ? events.map(({ body }) => body) : events);
const failed = (work) => work.then(() => "nothing", ({ code }) => code);

const producer = new EventHubProducerClient(connection, options);
const hub = await producer.getEventHubProperties();
did.hub = [hub.partitionIds, Math.abs(hub.createdOn - Date.now()) < 600_000];
did.ids = await producer.getPartitionIds();
did.empty = (await producer.getPartitionProperties("1")).isEmpty;

await producer.sendBatch(["a", "b", "c"].map((body) => ({ body })), { partitionId: "0" });
const keyed = await producer.createBatch({ partitionKey: "k" });
keyed.tryAdd({
  body: { size: 12 }, messageId: "m", contentType: "application/json", properties: { colour: "red", size: 12 },
});
await producer.sendBatch(keyed);
const buffered = new EventHubBufferedProducerClient(connection, { ...options, onSendEventsErrorHandler: ({ error }) => { throw error; } });
for (let number = 0; number < 30; number += 1) await buffered.enqueueEvent({ body: number });
// The buffering client hashes keys itself; the other one leaves them to the service.
for (const key of keys) {
  await buffered.enqueueEvent({ body: key }, { partitionKey: key });
  const batch = await producer.createBatch({ partitionKey: key });
  batch.tryAdd({ body: key });
  await producer.sendBatch(batch);
}
await buffered.flush();
await buffered.close();

const all = await received(34 + 2 * keys.length + Number(before), earliestEventPosition);
did.buffered = bodies(all).filter(Number.isInteger).sort((one, other) => one - other);
did.others = all.filter(({ body }) => Buffer.isBuffer(body)).map(({ body }) => body.toString()).sort();
const first = all.filter(({ body }) => "abc".includes(body));
did.order = [bodies(first), first.every(({ offset, sequenceNumber }, at) =>
  at === 0 || (offset > first[at - 1].offset && sequenceNumber > first[at - 1].sequenceNumber))];
const whole = all.find(({ messageId }) => messageId === "m");
did.whole = [whole.body, whole.partitionKey, whole.contentType, whole.properties];
const { isEmpty, lastEnqueuedOffset, beginningSequenceNumber } = await producer.getPartitionProperties("0");
did.properties = [isEmpty, lastEnqueuedOffset >= first[2].offset, beginningSequenceNumber === first[0].sequenceNumber];

const { offset, sequenceNumber, enqueuedTimeUtc } = first[1];
const from = async (count, position) => bodies(await received(count, position, { partition: "0" })).slice(0, count).join("");
did.places = [
  (await from(1, { offset })),
  (await from(2, { offset, isInclusive: true })),
  (await from(1, { sequenceNumber })),
  (await from(2, { sequenceNumber, isInclusive: true })),
  (await from(3, { enqueuedOn: new Date(enqueuedTimeUtc - 60_000) })),
];
did.laters = 0;
const later = () => { did.laters += 1; return producer.sendBatch([{ body: "later" }], { partitionId: "1" }); };
for (const position of [latestEventPosition, { enqueuedOn: new Date(Date.now() + 3_600_000) }]) {
  did.places.push(bodies(await received(1, position, { partition: "1", during: later }))[0]);
}

let thief;
did.owner = await received(99, latestEventPosition, {
  partition: "0", ownerLevel: 3, during: () => { thief ??= received(3, earliestEventPosition, { partition: "0", ownerLevel: 4 }); },
});
did.thief = bodies(await thief).slice(0, 3).join("");

did.refused = [
  await failed(producer.getPartitionProperties("9")),
  await failed(producer.sendBatch([{ body: "x" }], { partitionId: "9" })),
  await failed(producer.sendBatch([{ body: "x".repeat(300_000) }])),
  await failed(producer.sendBatch([{ body: "x".repeat(900_000) }])),
];
const wrong = new EventHubProducerClient(connection.replace(/SharedAccessKey=[^;]*/, `SharedAccessKey=${"k".repeat(40)}`), options);
did.refused.push(await failed(wrong.getPartitionIds()), await failed(wrong.sendBatch([{ body: "x" }])));
await wrong.close();
await producer.close();

// The SDK leaves timers behind.
process.stdout.write(JSON.stringify(did), () => process.exit());
