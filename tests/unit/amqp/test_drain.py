"""A drain takes what may go out, and then returns the credit that is left, but none that has come meanwhile."""

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from broker import codec
from broker.model.commands import Receive
from broker.model.items.items import Envelope
from broker.model.names import Jid, Partition
from broker.model.results import HeldItem, Received, Result
from frontends.amqp.links.context import LinkContext
from frontends.amqp.links.queue_consumer import LinkSubscription, QueueConsumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.model.core import Core

ALICE = Jid("alice@example.org")
NODE = Partition("jobs", "ab12", 1)


class _Service:
    """A core with some items, of which it gives one at a time."""

    def __init__(self, items: int) -> None:
        """Have so many items."""
        self.items = items
        self.waits: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def ask(self, command: object) -> Result:
        """Answer."""
        assert isinstance(command, Receive)
        self.waits.append(command.wait_seconds)
        self.meanwhile()
        if not (self.items and command.takes):
            return Received((), 0)
        self.items -= 1
        body = codec.pack(Envelope(b"<a/>"))
        return Received((HeldItem(NODE, "i", len(self.waits), 1, 0, ALICE, body, "", 0, lock_seconds=60),), 0)


class _Peer:
    """The link of a peer that drains its credit."""

    settles, most_bytes, draining = False, 1_000, True

    def __init__(self) -> None:
        """Have credit, and read at once."""
        self.credit, self.unsent = 10, 0
        self.sent: list[bytes] = []

    def open_for(self) -> int:
        """Return the credit."""
        return self.credit

    def send(self, message: bytes) -> int:
        """Take a message."""
        self.sent.append(message)
        self.credit -= 1
        return len(self.sent)

    def drained(self) -> None:
        """Take the credit back."""
        self.sent.append(b"drained")
        self.credit = 0


async def _drain(service: _Service, peer: _Peer) -> QueueConsumer:
    """Let a consumer work for a while."""
    connection: Any = SimpleNamespace(flush=lambda: None)
    context = LinkContext(cast("Core", service), cast("Any", None), connection, ALICE)
    subscription = LinkSubscription("jobs", several=False, owner=ALICE, jid=ALICE)
    consumer = QueueConsumer(cast("Any", peer), context, subscription)
    work = asyncio.create_task(consumer._deliver())
    for _turn in range(100):
        await asyncio.sleep(0)
    work.cancel()
    return consumer


@pytest.mark.parametrize("items", [0, 1, 3])
async def test_what_is_there(items: int) -> None:
    """Part 2 §2.6.7: drained credit is used for what is there, without waiting for more."""
    service, peer = _Service(items), _Peer()
    await _drain(service, peer)
    assert peer.sent[-1] == b"drained" and len(peer.sent) == items + 1
    assert service.waits == [0] * (items + 1)


async def test_credit_that_comes_meanwhile() -> None:
    """Part 2 §2.6.7: credit that comes while a drain looks for items is not given back before items are looked for with it."""
    service, peer = _Service(0), _Peer()

    def add() -> None:
        peer.credit = 15

    service.meanwhile = add
    await _drain(service, peer)
    assert (len(service.waits), peer.sent) == (2, [b"drained"])


async def test_a_peer_that_reads_slowly() -> None:
    """Part 2 §2.6.7: what a peer has to make room for is there, so its credit is not returned before it has read."""
    service, peer = _Service(1), _Peer()
    peer.unsent = 2**21
    await _drain(service, peer)
    assert (service.items, peer.sent) == (1, [])
