"""A publisher over a connection that somebody else keeps, such as a worker. Must not know who that is."""

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final

from stanzaq.codec import PLAIN, Codec
from stanzaq.errors import StanzaqError
from stanzaq.publisher.publisher import Publisher
from stanzaq.transport.interface import Outcome, Sender


class ConnectedPublisher(Publisher):
    """Sends items as long as its connection lasts, and has no outbox."""

    def __init__(self, sender: Sender, codec: Codec = PLAIN) -> None:
        """Use a sender whose connection is kept by what `start` is given."""
        self._codec = codec
        self._outbox = self._running = None
        self._sender = sender
        self._sending = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin what keeps the connection, and return its task; with its end publishes end too."""
        self._loop = asyncio.get_running_loop()
        self._running = asyncio.create_task(work)
        return self._running

    async def find_end(self, node: str, id: str) -> Outcome:  # noqa: A002
        """Return how an item has ended, as its publisher or an owner. Raises StanzaqError, `item-not-found` if it is not kept.

        Raises Reject for a result that the codec cannot read.
        """
        found = await self._read_answer(lambda sender: sender.outcome(node, id), f"the end of {id} was read")
        return found if found.result is None else replace(found, result=self._codec.decode(found.result, (node,)))

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that publishes run in. Raises StanzaqError before the connection is kept."""
        if self._loop is None:
            msg = "the worker is not connected yet: send from a handler, or from a publisher of your own"
            raise StanzaqError(msg)
        return self._loop


current: Final[ContextVar[ConnectedPublisher | None]] = ContextVar("stanzaq-publisher", default=None)
"""The publisher of the worker whose job runs."""
