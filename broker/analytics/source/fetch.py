"""Entries of a piece of a stream, read from Redis a bounded number at a time. Must not know what stands in them.

A journal loses its oldest records to a limit and to age, maybe under the reader: each reply comes with how many the stream
has lost by then, so that what went unread is noticed, and nothing else is taken for loss.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import AskError, MovedError, ResponseError

from broker.analytics.faults import Unreadable
from broker.analytics.source.columns import Entry
from broker.analytics.source.offsets import Id
from broker.analytics.source.pieces import Piece
from broker.analytics.source.servers import Link, Process, Servers

_MOVES: Final = 100
_MOVE_SECONDS: Final = 0.05

_log = logging.getLogger("stanzaq")


@dataclass(frozen=True, slots=True)
class Manner:
    """How to read: so many entries a command; whether what is gone is loss, and then refused; at most so many rows a second."""

    count: int
    watched: bool
    refuse: bool
    rows_per_second: float | None = None


def lost(piece: Piece, missing: int | None, *, refuse: bool) -> None:
    """Refuse that records went unread, or say it and go on."""
    many = "records" if missing is None else f"{missing} records"
    what = f"journal of {piece.place}: {many} after {piece.after} went before they were read"
    if refuse:
        remedy = "read more often, raise JOURNAL_RECORDS, or go on without them (failOnDataLoss=false)"
        msg = f"{what}: {remedy}"
        raise Unreadable(msg)
    _log.warning("%s; reading goes on without them", what)


def fetch(servers: Servers, process: Process, piece: Piece, manner: Manner) -> Iterator[Sequence[Entry]]:
    """Give the entries of a piece, in order; follows the stream when its slot moves to another process."""
    with ExitStack() as stack:
        reader = _Reader(piece, manner)
        link = stack.enter_context(servers.link(process))
        moves = 0
        while not reader.done:
            try:
                yield from reader.read(link)
            except AskError as error:
                moves += 1
                if moves > _MOVES:
                    msg = f"{piece.key} moves from one node of the cluster to another without end: look at the cluster"
                    raise Unreadable(msg) from error
                # While a stream is on its way it is asked for again; when it has arrived, who had it says where.
                time.sleep(_MOVE_SECONDS)
                stack.close()
                if isinstance(error, MovedError):
                    process = Process(error.host, error.port)
                link = stack.enter_context(servers.link(process))


class _Reader:
    """How far one piece was read."""

    def __init__(self, piece: Piece, manner: Manner) -> None:
        """Begin at its start."""
        self._piece = piece
        self._manner = manner
        self._count = manner.count
        if manner.rows_per_second is not None:
            self._count = max(1, min(manner.count, int(manner.rows_per_second)))
        self._after = piece.after
        self._before = piece.before
        self._rows = 0
        self._began = time.monotonic()
        self.done = False

    def read(self, link: Link) -> Iterator[Sequence[Entry]]:
        """Read on, with one request ahead of whoever takes the entries: Redis works while they are decoded."""
        self._request(link)
        while not self.done:
            entries: Sequence[Entry] = link.receive()
            if self._manner.watched:
                self._watch(_state(link.receive))
            if entries:
                self._after = Id.parse(entries[-1][0])
                self._rows += len(entries)
                if self._before is not None:
                    self._before += len(entries)
            # What is lost after the end is no loss: at the end nothing more is asked.
            self.done = len(entries) < self._count or self._after >= self._piece.upto
            if not self.done:
                self._pause()
                self._request(link)
            if entries:
                yield entries

    def _request(self, link: Link) -> None:
        link.send("XRANGE", self._piece.key, f"({self._after}", str(self._piece.upto), "COUNT", self._count)
        if self._manner.watched:
            link.send("XINFO", "STREAM", self._piece.key)

    def _pause(self) -> None:
        if self._manner.rows_per_second is not None:
            time.sleep(max(0.0, self._began + self._rows / self._manner.rows_per_second - time.monotonic()))

    def _watch(self, state: dict[bytes, Any] | None) -> None:
        """Notice what the stream lost after the place that the reply began at; None: there is no stream any more."""
        if state is None:
            lost(self._piece._replace(after=self._after), None, refuse=self._manner.refuse)
            return
        gone = state[b"entries-added"] - state[b"length"]
        first = state[b"first-entry"]
        if self._before is not None:
            missing = gone - self._before
            if missing > 0:
                self._before = gone
                lost(self._piece._replace(after=self._after), missing, refuse=self._manner.refuse)
        elif gone and (first is None or Id.parse(first[0]) > self._after.next()):
            lost(self._piece._replace(after=self._after), None, refuse=self._manner.refuse)


def _state(receive: Callable[[], Any]) -> dict[bytes, Any] | None:
    try:
        told = receive()
    except AskError:
        raise
    except ResponseError:
        # Its node was deleted, with all records.
        return None
    return dict(zip(told[::2], told[1::2], strict=True))
