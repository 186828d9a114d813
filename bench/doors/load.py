"""Two loads: whole jobs through a stanzaq queue, and publishes through ejabberd's own pubsub. Knows stanzas as bytes.

Both are closed loops with a window: a new job begins when one is done. Must not know targets, rows or processes.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from typing import Final, Self

from bench.doors.wire import Session, Wire
from frontends.tools.demo import stanzas
from frontends.tools.servers.process import ServerError
from frontends.xmpp import namespaces as ns

WINDOW: Final = 50
WORKERS: Final = 4
STANZAS_PER_JOB: Final = 6
"""The stanzas of a job at a frontend: publish, its result, delivery, retract, notification, its result."""

_DRAIN_SECONDS: Final = 20.0
PAYLOAD: Final = f"<job xmlns='urn:example:job'>{'x' * 160}</job>"
"""200 bytes, as in the benchmark of the core."""

USUAL: Final[Mapping[str, str]] = {}
"""A node with the usual options."""

_ANSWER: Final = re.compile(rb"<iq ([^>]*)>")
_DELIVERY: Final = re.compile(rb"<(?:iq ([^>]*)|lock [^>]*\bitem='((\d+)[^']*)' token='(\d+)'[^>]*)>")
_EVENT: Final = re.compile(rb"<item id='(\d+)'[^>]*>")

_RETRACT: Final = (
    b"<iq type='set' to='%b' id='r%b'><pubsub xmlns='" + ns.PUBSUB.encode() + b"'><retract node='%b'>"
    b"<item id='%b' token='%b'/></retract></pubsub></iq>"
)


def publication(service: str, node: str) -> bytes:
    """Return a publish with placeholders for two numbers: the request's and the item's."""
    content = stanzas.publish(node, "%d", PAYLOAD).replace('"', "'")
    return f"<iq type='set' to='{service}' id='p%d'>{content}</iq>".encode()


class Loop:
    """Calls `begin(number)` within a window; the caller calls `end` for each one that is done."""

    def __init__(self, begin: Callable[[int], None], window: int = WINDOW) -> None:
        """Prepare; nothing runs yet."""
        self._begin = begin
        self._window = window
        self._number = 0
        self._open = 0
        self._running = False
        self._done = 0
        self._ended = asyncio.Event()
        self.failure = ""

    def end(self, count: int = 1) -> None:
        """Count so many as done."""
        self._done += count
        self._open -= count
        self._ended.set()
        if self._running:
            for _ in range(count):
                self.next()

    def next(self) -> None:
        """Start one."""
        self._number += 1
        self._open += 1
        self._begin(self._number)

    async def rate(self, seconds: float) -> tuple[int, float]:
        """Run for `seconds`, then wait until none is open; returns how many were done, and how many a second.

        It runs on until as many are done as a window has: the rate of fewer says nothing.
        """
        done, began = self._done, time.perf_counter()
        self._running = True
        for _ in range(self._window):
            self.next()
        await asyncio.sleep(seconds)
        await self._wait_until(lambda: self._done - done >= self._window)
        self._running = False
        measured = (self._done - done) / (time.perf_counter() - began)
        await self.wait_until_done()
        return self._done - done, measured

    async def wait_until_done(self) -> None:
        """Wait until none is open."""
        await self._wait_until(lambda: not self._open)

    async def _wait_until(self, holds: Callable[[], bool]) -> None:
        while not holds() and not self.failure:
            self._ended.clear()
            try:
                await asyncio.wait_for(self._ended.wait(), _DRAIN_SECONDS)
            except TimeoutError:
                self.failure = f"{self._open} are open, and none was done for {_DRAIN_SECONDS:.0f} s"
        if self.failure:
            raise ServerError(self.failure)

    def check(self, answer: bytes) -> None:
        """Check the attributes of an IQ; an error ends the measurement."""
        if b"type='error'" in answer:
            self.failure = f"the service answered: {answer.decode()}"
            self._running = False
            self._ended.set()


class Jobs:
    """A queue with one publisher and several workers, each on its own connection."""

    answers = _ANSWER
    """What the publisher listens for; the group is the attributes."""

    def __init__(self, service: str, node: str) -> None:
        """Prepare; `open` connects."""
        self._service = service
        self._node = node
        self._publish = publication(service, node)
        self._names = (service.encode(), node.encode())
        self._options = USUAL
        self._publisher: Wire
        self._workers: list[Wire] = []
        self._sent: dict[int, float] = {}
        self.waits: list[float] = []
        self.loop = Loop(self._begin)

    @classmethod
    async def open(  # noqa: PLR0913, PLR0917  (where, and what)
        cls,
        port: int,
        accounts: str,
        service: str,
        node: str,
        workers: int = WORKERS,
        options: Mapping[str, str] = USUAL,
        window: int = WINDOW,
    ) -> Self:
        """Create the node; log in and subscribe all clients. Without `workers` the caller ends each job of the loop."""
        jobs = cls(service, node)
        jobs._options, jobs.loop = options, Loop(jobs._begin, window)
        await jobs._connect(port, accounts, workers, window)
        return jobs

    async def _connect(self, port: int, accounts: str, workers: int, window: int, batch: int = 1) -> None:
        owner = Session.open(port, accounts)
        owner.ask(self._service, stanzas.create(self._node, self._options))
        self._publisher = await Wire.over(owner, self.answers, lambda found: self._on_answer(found[1]))
        credit, group = -(-window // WORKERS), ""
        if "stanzaq#partitions" in self._options:
            # Several partitions are owned, and a member's credit is divided by their number.
            credit, group = window, "workers"
        for _ in range(workers):
            worker = Session.open(port, accounts)
            worker.tell(f"<presence to='{self._service}'/>")
            worker.ask(self._service, stanzas.subscribe(self._node, worker.jid, credit, batch, group))
            self._workers.append(await self._worker(worker))

    def close(self) -> None:
        """Disconnect all clients."""
        for wire in (self._publisher, *self._workers):
            wire.close()

    async def run_paced(self, per_second: int, seconds: float) -> None:
        """Start jobs at a fixed rate, without a window, and wait until all are done."""
        self.waits.clear()
        began = time.perf_counter()
        for number in range(int(per_second * seconds)):
            await asyncio.sleep(began + number / per_second - time.perf_counter())
            self.loop.next()
        await self.loop.wait_until_done()

    def _begin(self, number: int) -> None:
        self._sent[number] = time.perf_counter()
        self._publisher.write(self._publish % (number, number))

    def _on_answer(self, answer: bytes) -> None:
        """Check the answer to a publish."""
        self.loop.check(answer)

    def _on_done(self) -> None:
        """Count an item as done by its worker."""
        self.loop.end()

    async def _worker(self, session: Session) -> Wire:
        service, node = self._names

        def take(found: re.Match[bytes]) -> None:
            answer, item, number, token = found.groups()
            if item is not None:
                wire.write(_RETRACT % (service, number, node, item, token))
                self.waits.append(time.perf_counter() - self._sent.pop(int(number)))
            # The notification precedes the result on the same stream (QX17), so the result ends the job.
            else:
                self.loop.check(answer)
                self._on_done()

        wire = await Wire.over(session, _DELIVERY, take)
        return wire


class Pubsub:
    """The ceiling: a node of ejabberd's pubsub with one publisher and one subscriber."""

    def __init__(self, service: str, node: str) -> None:
        """Prepare; `open` connects."""
        self._publish = publication(service, node)
        self._publisher: Wire
        self._subscriber: Wire
        self.loop = Loop(self._begin)

    @classmethod
    async def open(cls, port: int, accounts: str, service: str, node: str) -> Self:
        """Create the node and log in both clients."""
        pubsub = cls(service, node)
        owner, subscriber = Session.open(port, accounts), Session.open(port, accounts)
        # Like ours, it stores each item; it keeps only the last one, as a queue keeps only unfinished items. A node that
        # grows is three times as slow and would make ours look better.
        owner.ask(service, stanzas.create(node, {"pubsub#max_items": "1"}))
        subscribe = f"<subscribe node='{node}' jid='{subscriber.jid}'/>"
        subscriber.ask(service, f"<pubsub xmlns='{ns.PUBSUB}'>{subscribe}</pubsub>")
        pubsub._publisher = await Wire.over(owner, _ANSWER, lambda found: pubsub.loop.check(found[1]))
        pubsub._subscriber = await Wire.over(subscriber, _EVENT, lambda _: pubsub.loop.end())
        return pubsub

    def close(self) -> None:
        """Disconnect both."""
        self._publisher.close()
        self._subscriber.close()

    def _begin(self, number: int) -> None:
        self._publisher.write(self._publish % (number, number))
