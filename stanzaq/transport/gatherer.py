"""Sends what is asked about items in one turn of the event loop as one request. Must not know what is asked, nor the transport.

Nothing waits for more: a turn's rows go at its end. Whoever asked alone, or gets no outcome of its own, asks again by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from stanzaq.errors import StanzaqError

_MOST: Final = 100
"""The rows of a request that every service with batches takes."""

_BYTES: Final = 32_768
"""The bytes of its rows; XMPP servers take several times as much."""


class Refusal(Protocol):
    """Why a service did not do what a row asks."""

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later."""

    @property
    def seconds(self) -> float:
        """How long the service wants to be left alone."""

    def fault(self, what: str) -> StanzaqError:
        """Return the exception for a request that could not do `what`."""


class Outcomes(Protocol):
    """The answer to a request: the refusals by item."""

    @property
    def refusals(self) -> Mapping[str, Refusal]:
        """The refusals by item."""


Where = TypeVar("Where", bound=Hashable)
Told = TypeVar("Told", bound=Outcomes)


class _Batch(Generic[Told]):
    """Rows of one request and who waits for them, by the ids of their items."""

    def __init__(self, most: int) -> None:
        self.rows: dict[str, str] = {}
        self.answers: dict[str, asyncio.Future[Told | None]] = {}
        self._size, self._most = 0, most

    def add(self, item: str, row: str) -> bool:
        """Add a row; False if there is no room, or one about that item."""
        size = len(row.encode())
        if self.rows and (item in self.rows or len(self.rows) >= self._most or self._size + size > _BYTES):
            return False
        self._size += size
        self.rows[item] = row
        self.answers[item] = asyncio.get_running_loop().create_future()
        return True


class Gatherer(Generic[Where, Told]):
    """Gathers the rows that go to the same place, such as a node."""

    def __init__(self, send: Callable[[Where, Mapping[str, str]], Awaitable[Told | None]]) -> None:
        """Gather rows for `send`, which gets them by item and returns None if their outcomes are not known.

        It may raise StanzaqError.
        """
        self._send = send
        self.most = _MOST
        """Most rows of a request."""

        self._open: dict[Where, _Batch[Told]] = {}
        self._sending: set[asyncio.Task[None]] = set()

    async def ask(self, where: Where, item: str, row: str, what: str) -> Told | None:
        """Ask about an item together with others; None if it must be asked alone, also when its refusal may have passed.

        Raises StanzaqError, which says `what`, if it is refused for good.
        """
        told = await self._join(where, item, row)
        refused = None if told is None else told.refusals.get(item)
        if refused is None:
            return told
        if refused.passing:
            await asyncio.sleep(refused.seconds)
            return None
        raise refused.fault(what)

    def _join(self, where: Where, item: str, row: str) -> asyncio.Future[Told | None]:
        """Add a row to the batch of this turn and return its answer; a fault's traceback keeps no more than that."""
        batch = self._open.get(where)
        if batch is None or not batch.add(item, row):
            batch = self._open[where] = _Batch(self.most)
            batch.add(item, row)
            asyncio.get_running_loop().call_soon(self._close, where, batch)
        return batch.answers[item]

    def _close(self, where: Where, batch: _Batch[Told]) -> None:
        """Send a batch, unless one row or none is left of it."""
        if self._open.get(where) is batch:
            del self._open[where]
        waiting = {item: answer for item, answer in batch.answers.items() if not answer.done()}
        if len(waiting) < 2:
            _answer(batch, None)
            return
        task = asyncio.create_task(self._send_batch(where, {item: batch.rows[item] for item in waiting}, batch))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        left = len(waiting)

        def stop(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                task.cancel()

        for answer in waiting.values():
            answer.add_done_callback(stop)

    async def _send_batch(self, where: Where, rows: Mapping[str, str], batch: _Batch[Told]) -> None:
        outcomes = None
        try:
            outcomes = await self._send(where, rows)
        except StanzaqError:
            # The service refuses the batch as such, or what is wrong with a row. Its caller will see it.
            return
        finally:
            _answer(batch, outcomes)


def _answer(batch: _Batch[Told], outcomes: Told | None) -> None:
    for answer in batch.answers.values():
        if not answer.done():
            answer.set_result(outcomes)
