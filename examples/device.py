"""Exactly once from a device on a bad line: a reading is in a file until the queue has it.

Kill the program, or its connection, and start it again: no reading is lost, and none is in the queue twice.

$ curl --user publisher@localhost:secret --request PUT http://127.0.0.1:8080/queues/readings
$ STANZAQ_PASSWORD=secret python examples/device.py
"""

import asyncio
import random
import time
from typing import Any

from stanzaq import Publisher

AT: dict[str, Any] = {"service": "queue.localhost", "address": "127.0.0.1:5222", "tls": "disabled"}


async def send(publisher: Publisher, reading: dict[str, float]) -> None:
    await publisher.publish("readings", reading)
    print("stored", reading["at"], flush=True)


async def main() -> None:
    device = Publisher("xmpp://publisher@localhost", outbox="readings.db", **AT)
    async with device, asyncio.TaskGroup() as group:
        for _ in range(20):
            # The next reading does not wait for the line.
            group.create_task(send(device, {"at": time.time_ns(), "celsius": random.gauss(20)}))
            await asyncio.sleep(0.05)


asyncio.run(main())
