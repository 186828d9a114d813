"""A drain looks for items as long as some may go out, but not for ever, and returns no credit that it has not used for that."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from broker import codec
from broker.model.commands import Fetch, Stats
from broker.model.items import Envelope
from broker.model.names import Jid, Partition
from broker.model.results import Counted, Fetched, HeldItem, Result
from frontends.amqp.links.context import LinkContext
from frontends.amqp.links.queue_consumer import LinkSubscription, QueueConsumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.model.core import Core

ALICE = Jid("alice@example.org")
NODE = Partition("jobs", "ab12", 1)


class _Service:
    """A core whose items that may go out are still on their way at the first `late` looks."""

    def __init__(self, eligible: int, late: int) -> None:
        """Have so many items."""
        self.eligible, self.late = eligible, late
        self.waits: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def ask(self, command: object) -> Result:
        """Answer."""
        if isinstance(command, Stats):
            return Counted(self.eligible, self.eligible, 0, 0, 0, 0, 1, 0)
        assert isinstance(command, Fetch)
        self.waits.append(command.wait_seconds)
        self.meanwhile()
        if not self.eligible or len(self.waits) <= self.late:
            return Fetched((), 0)
        self.eligible -= 1
        return Fetched((HeldItem(NODE, "i", len(self.waits), 1, 0, ALICE, codec.pack(Envelope(b"<a/>")), "", 0),), 0)


def _drained(service: _Service, *, several: bool) -> tuple[QueueConsumer, list[bytes]]:
    """Return a consumer with credit, and what it sends."""
    sent: list[bytes] = []

    def send(message: bytes) -> int:
        sent.append(message)
        return len(sent)

    link: Any = SimpleNamespace(open_for=lambda: 10, unsent=0, settles=False, most_bytes=1_000, send=send)
    link.drained = lambda: sent.append(b"drained")
    connection: Any = SimpleNamespace(flush=lambda: None)
    context = LinkContext(cast("Core", service), cast("Any", None), connection, ALICE)
    consumer = QueueConsumer(link, context, LinkSubscription("jobs", several, ALICE, ALICE, "s"))
    consumer._credit = 10
    return consumer, sent


@pytest.mark.parametrize(
    ("several", "eligible", "late", "looks", "found"),
    [
        (True, 1, 0, 1, 1),
        # Credit moves between partitions, which takes a slow service as long as it takes.
        (True, 1, 4, 5, 1),
        # They are for other consumers.
        (True, 1, 99, 5, 0),
        (False, 1, 99, 1, 0),
    ],
)
async def test_items_that_may_go_out(*, several: bool, eligible: int, late: int, looks: int, found: int) -> None:
    """Part 2 §2.6.7: drained credit is used for what is there, however long it takes to come."""
    service = _Service(eligible, late)
    consumer, sent = _drained(service, several=several)
    assert await consumer._send_available() == bool(found)
    assert (len(service.waits), len(sent)) == (looks, found) and all(service.waits)


async def test_nothing_to_wait_for() -> None:
    """A drain of an empty queue does not wait."""
    service = _Service(0, 0)
    consumer, sent = _drained(service, several=True)
    assert not await consumer._send_available()
    assert (service.waits, sent) == ([0], [])


@pytest.mark.parametrize("more", [0, 5])
async def test_credit_that_comes_meanwhile(more: int) -> None:
    """Part 2 §2.6.7: credit that comes while a drain looks for items is not given back before items are looked for with it."""
    service = _Service(0, 0)
    consumer, sent = _drained(service, several=True)

    def add() -> None:
        consumer.link.open_for = lambda: 10 + more  # type: ignore[method-assign]

    service.meanwhile = add
    await consumer._drain()
    assert sent == ([] if more else [b"drained"])


async def test_a_peer_that_reads_slowly() -> None:
    """Part 2 §2.6.7: what a peer has to make room for is there, so the drain goes on, also if that shows while it looks."""
    service = _Service(1, 0)
    consumer, sent = _drained(service, several=False)
    ask = service.ask

    async def full(command: object) -> Result:
        consumer.link.unsent = 2**21  # type: ignore[misc]
        return await ask(command)

    service.ask = full  # type: ignore[method-assign]
    await consumer._drain()
    assert (service.waits, sent) == ([], [])
