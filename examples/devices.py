"""200 devices on bad lines: a reading is in the device's own file until the queue has it, and none waits for the line.

Cut the line, or kill the program and start it again: no reading is lost, and none is in the queue twice. (A reading that the
queue has, but whose answer stays away for more than two hours, may be there twice; over XMPP not even that.)

$ curl --user publisher@localhost:secret --request PUT http://127.0.0.1:8080/queues/readings
$ STANZAQ_PASSWORD=secret python devices.py

The twin, with Celery, does not promise as much. Celery has no outbox, so its devices keep one by hand. A device that dies, or
loses its line, after it has sent a reading and before its row is deleted, sends it again under the same id. Celery runs both,
so its worker must remember all ids.
"""

import asyncio
import random
import time
from pathlib import Path

from stanzaq import Publisher

DEVICES, READINGS = 200, 10


async def measure(number: int) -> None:
    url, outbox = "http://publisher@localhost@127.0.0.1:8080", f"devices/{number}.db"
    async with Publisher(url, outbox=outbox) as device, asyncio.TaskGroup() as sending:
        for _ in range(READINGS):
            reading = {"device": number, "at": time.time_ns(), "celsius": random.gauss(20)}
            sending.create_task(device.publish("readings", reading))
            await asyncio.sleep(1)


async def main() -> None:
    await asyncio.gather(*map(measure, range(DEVICES)))


Path("devices").mkdir(exist_ok=True)
asyncio.run(main())
