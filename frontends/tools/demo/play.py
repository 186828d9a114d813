"""Publishers and workers at one queue until every item is done. Knows what they send; must not know which servers serve.

The tally records every event; it is the demo's evidence.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element

from frontends.tools.demo import stanzas
from frontends.tools.demo.client import Client
from frontends.tools.demo.stanzas import Delivered
from frontends.tools.demo.tally import Summary, Tally

NODE: Final = "demo"
LOCK_SECONDS: Final = 30
STALLED_SECONDS: Final = 2.0 * LOCK_SECONDS
"""Without any progress for this long, even the lock of a dead worker would have expired and been redelivered."""

_OPTIONS: Final = {
    "stanzaq#lock_seconds": str(LOCK_SECONDS),
    # A publish whose answer was lost is repeated, maybe after its item is done: it must not be accepted again (X1).
    "stanzaq#dedupe": "ignore",
}
_PUBLISHERS: Final = 2
_TICK_SECONDS: Final = 0.02
_BROWSED_AT_ONCE: Final = 100
_COUNTS: Final = ("stanzaq#waiting", "stanzaq#in_flight", "stanzaq#dying")


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Where the queue is: the service's domain, and the XMPP server with its anonymous accounts."""

    service: str
    accounts: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Workload:
    """The number of items, of workers, and the credit of each."""

    items: int
    workers: int
    credit: int


class Play:
    """One run; `step` is called often, with the tally, and `done` before the workers leave."""

    def __init__(
        self,
        place: ServiceAddress,
        workload: Workload,
        step: Callable[[Tally], None],
        done: Callable[[], Awaitable[None]],
    ) -> None:
        """Prepare a run; must run inside the event loop."""
        self._place = place
        self._workload = workload
        self._step = step
        self._done = done
        self._tally = Tally()
        self._owner: Client
        # Twice what the workers may hold: they always have work, and items do not age in a growing queue.
        self._room = asyncio.Semaphore(2 * workload.workers * workload.credit)

    async def run(self) -> Summary:
        """Run to the end, or until progress stops; then compare with what the service reports."""
        async with self._client(_ignore) as owner:
            await owner.demand("set", stanzas.create(NODE, _OPTIONS))
            self._owner = owner
            async with asyncio.TaskGroup() as group:
                cast = [group.create_task(self._work()) for _ in range(self._workload.workers)]
                numbers = iter(range(1, self._workload.items + 1))
                cast += [group.create_task(self._publish(numbers)) for _ in range(_PUBLISHERS)]
                await self._watch()
                await self._done()
                for task in cast:
                    task.cancel()
            return self._tally.summary(*await self._compare(owner))

    async def _watch(self) -> None:
        tally = self._tally
        while len(tally.acknowledged) < self._workload.items and tally.seconds_idle(time.monotonic()) < STALLED_SECONDS:
            await asyncio.sleep(_TICK_SECONDS)
            self._step(tally)

    async def _publish(self, numbers: Iterator[int]) -> None:
        """Publish while there are numbers, with a bounded number of open publishes."""
        async with self._client(_ignore) as client, asyncio.TaskGroup() as group:
            await self._admit(client, "publisher")
            for number in numbers:
                await self._room.acquire()
                group.create_task(
                    self._publish_one(client, f"job-{number}", f"<job xmlns='urn:example:job'>{number}</job>")
                )

    async def _publish_one(self, client: Client, item_id: str, payload: str) -> None:
        self._tally.note_sending(item_id, time.monotonic())
        await client.demand("set", stanzas.publish(NODE, item_id, payload))
        self._tally.note_answered(item_id)

    async def _work(self) -> None:
        """Receive items and acknowledge them at once."""
        async with asyncio.TaskGroup() as group:

            def receive(message: Element) -> None:
                item = stanzas.parse_delivery(message)
                if item is not None and self._tally.note_delivered(item, time.monotonic()):
                    group.create_task(self._acknowledge(client, item))

            async with self._client(receive) as client:
                await self._admit(client, "member")
                await client.demand("set", stanzas.subscribe(NODE, client.boundjid.full, self._workload.credit))
                await asyncio.Event().wait()

    async def _admit(self, client: Client, affiliation: str) -> None:
        """Admit an account to the queue, as its owner: nobody else may use it."""
        await self._owner.demand("set", stanzas.admit(NODE, client.boundjid.bare, affiliation))

    async def _acknowledge(self, client: Client, item: Delivered) -> None:
        reply = await client.ask("set", stanzas.retract(NODE, item))
        # A refusal means that another worker has the lock by now, and will acknowledge.
        if not stanzas.condition(reply) and self._tally.acknowledge(item.item_id, time.monotonic()):
            self._room.release()

    async def _compare(self, owner: Client) -> tuple[int, int]:
        """Ask the service how many of the missing items it can show, and how many it has in all."""
        missing = sorted(self._tally.find_missing())
        shown: set[str] = set()
        for first in range(0, len(missing), _BROWSED_AT_ONCE):
            reply = await owner.demand("get", stanzas.browse(NODE, missing[first : first + _BROWSED_AT_ONCE]))
            shown |= stanzas.parse_browsed(reply)
        counts = stanzas.counts(await owner.demand("get", stanzas.info(NODE)))
        return len(shown.intersection(missing)), sum(counts[name] for name in _COUNTS)

    @asynccontextmanager
    async def _client(self, receive: Callable[[Element], None]) -> AsyncIterator[Client]:
        client = Client(self._place.accounts, self._place.service, receive)
        await client.enter(self._place.host, self._place.port)
        try:
            yield client
        finally:
            await client.leave()


def _ignore(_: Element) -> None:
    pass
