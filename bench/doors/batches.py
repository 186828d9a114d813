"""A load of whole jobs in batches: publishes, deliveries and acknowledgements of several items in a stanza.

Knows stanzas as bytes. What comes up in one turn of the event loop goes together, and nothing waits for a batch to fill. Must
not know targets, rows or processes.
"""

import asyncio
import re
import time
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Final, Self

from bench.doors.load import PAYLOAD, USUAL, WORKERS, Jobs, Loop
from bench.doors.wire import Session, Wire
from frontends.xmpp import namespaces as ns

_ITEM: Final = f"<item id='%d'>{PAYLOAD}</item>".encode()
_ACK: Final = b"<ack id='%b' token='%b'/>"
_REQUEST: Final = b"<iq type='set' to='%b' id='b%d'><%b xmlns='" + ns.STANZAQ.encode() + b"' node='%b'>%b</%b></iq>"

_FOUND: Final = re.compile(
    rb"<(?:iq ([^>]*\bid='b(\d+)'[^>]*)|error [^>]*|lock [^>]*\bitem='((\d+)[^']*)' token='(\d+)'[^>]*)>"
)
"""An answer, the error of a row, or the lock of a delivered item."""


class Batches(Jobs):
    """The clients of `Jobs` with batches; eight of them are under way for each worker."""

    answers = re.compile(rb"<((?:iq|error) [^>]*)>")

    def __init__(self, service: str, node: str, batch: int) -> None:
        """Prepare; `open_with` connects."""
        super().__init__(service, node)
        self._batch = batch
        self._window = 8 * batch * WORKERS
        self._unpublished: list[int] = []
        self._numbers = count(1)
        self.loop = Loop(self._begin, self._window)

    @classmethod
    async def open_with(  # noqa: PLR0913, PLR0917  (where, and what)
        cls, port: int, accounts: str, service: str, node: str, batch: int, options: Mapping[str, str] = USUAL
    ) -> Self:
        """Create the node; log in and subscribe all clients."""
        jobs = cls(service, node, batch)
        jobs._options = options
        await jobs._connect(port, accounts, WORKERS, jobs._window, batch)
        return jobs

    def _begin(self, number: int) -> None:
        self._sent[number] = time.perf_counter()
        self._unpublished.append(number)
        if len(self._unpublished) == 1:
            asyncio.get_running_loop().call_soon(self._publish_all)

    def _publish_all(self) -> None:
        rows = [_ITEM % number for number in self._unpublished]
        self._unpublished.clear()
        for _, _, request in self._requests(b"publish", rows):
            self._publisher.write(request)

    def _requests(self, what: bytes, rows: list[bytes]) -> Iterator[tuple[int, int, bytes]]:
        """Yield the number of each request, how many rows it has, and its bytes."""
        service, node = self._names
        for first in range(0, len(rows), self._batch):
            number, some = next(self._numbers), rows[first : first + self._batch]
            yield number, len(some), _REQUEST % (service, number, what, node, b"".join(some), what)

    def _on_answer(self, answer: bytes) -> None:
        self.loop.check(b"type='error' of a row" if b"error " in answer else answer)

    async def _worker(self, session: Session) -> Wire:
        held: list[bytes] = []
        settling: dict[int, int] = {}

        def settle_all() -> None:
            for number, rows, request in self._requests(b"settle", held):
                settling[number] = rows
                wire.write(request)
            held.clear()

        def take(found: re.Match[bytes]) -> None:
            answer, request, item, number, token = found.groups()
            if item is not None:
                if not held:
                    asyncio.get_running_loop().call_soon(settle_all)
                held.append(_ACK % (item, token))
                self.waits.append(time.perf_counter() - self._sent.pop(int(number)))
            elif request is not None:
                self.loop.check(answer)
                self.loop.end(settling.pop(int(request)))
            else:
                self._on_answer(found[0])

        wire = await Wire.over(session, _FOUND, take)
        return wire
