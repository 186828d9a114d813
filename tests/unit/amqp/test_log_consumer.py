"""A consumer's link that looks for its first event: how much it reads for one credit."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from broker import codec
from broker.model.commands import Read
from broker.model.items.items import Envelope
from broker.model.names import Jid
from broker.model.results import Event, Replay
from frontends.amqp.links.log_consumer import READ_MOST, LogConsumer, LogRead
from tests.waiting import PATIENCE_SECONDS

EVENTS = 1_200


class _Log:
    """A core with a log of many events, whose offsets are their numbers."""

    def __init__(self) -> None:
        """Note what is read."""
        self.limits: list[int] = []

    async def ask(self, command: Read) -> Replay:
        """Read the log."""
        first = int(command.start.removeprefix(">")) + 1
        last = min(first + command.limit, EVENTS + 1)
        self.limits.append(command.limit)
        body = codec.pack(Envelope(b"x"))
        found = tuple(Event(str(each), each, str(each), "", Jid("a@x"), body) for each in range(first, last))
        return Replay(0, found, "1", str(EVENTS), str(last - 1), gap=False, more=last <= EVENTS)


class _Link:
    """A link with one credit."""

    alive, draining, unsent, unsettled, most_bytes = True, False, 0, 0, 10_000

    def __init__(self) -> None:
        """Have sent nothing."""
        self.sent = asyncio.Event()
        self.credit = 1

    def prepare(self) -> None:
        """Do nothing."""

    def open_for(self) -> int:
        """Return the credit."""
        return self.credit

    def send(self, _message: bytes) -> None:
        """Take the message."""
        self.credit -= 1
        self.sent.set()


async def test_looks_for_its_first_event_in_large_steps() -> None:
    """Events before the first use no credit, so one credit does not make each of them a read of its own."""
    log, link = _Log(), _Link()
    quiet = SimpleNamespace(enter=lambda *_: None, leave=lambda *_: None, flush=lambda: None)
    context = SimpleNamespace(sender=Jid("a@x"), core=log, tails=quiet, connection=quiet)
    read = LogRead("log", 0, "0", lambda event: event.offset == "1100")
    consumer = LogConsumer(cast("Any", link), cast("Any", context), read)
    consumer.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await link.sent.wait()
    assert log.limits == [READ_MOST] * 3 and consumer.after == "1100"
    link.credit = 1
    link.sent.clear()
    consumer.wake()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await link.sent.wait()
    assert log.limits[3:] == [1] and consumer.after == "1101"
    consumer.stop()
