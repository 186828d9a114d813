// BullMQ over Redis: one process with 50 jobs at once, acknowledgement after the job, nothing kept of it.
import fs from "node:fs";
import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";

const pipe = fs.openSync(process.env.PEERS_PIPE, "w");
const connection = new Redis(process.env.PEERS_REDIS, { maxRetriesPerRequest: null });

if (process.argv[2] === "work") {
  const worker = new Worker("work", async () => { fs.writeSync(pipe, "."); }, { connection, concurrency: 50 });
  process.on("SIGTERM", () => worker.close().then(() => process.exit(0)));
} else {
  const queue = new Queue("work", { connection, defaultJobOptions: { removeOnComplete: true } });
  const payload = "x".repeat(200);
  let left = Number(process.argv[3]);
  await queue.waitUntilReady();
  fs.writeSync(pipe, "b");
  await Promise.all(Array.from({ length: 50 }, async () => {
    while (left-- > 0) await queue.add("work", payload);
  }));
  fs.writeSync(pipe, "e");
  await queue.close();
  connection.disconnect();
}
