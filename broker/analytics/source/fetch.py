"""Reads the entries of a piece of a stream from Redis, a bounded number at a time. Must not know what entries contain.

A journal drops its oldest records by number and age, possibly during the read. Each reply says how many the stream has
dropped so far, so unread records are noticed, and nothing else counts as loss.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import AskError, ResponseError

from broker.analytics.faults import Unreachable, Unreadable
from broker.analytics.source.columns import Entry
from broker.analytics.source.offsets import Id
from broker.analytics.source.pieces import Piece
from broker.analytics.source.servers import Link, Process, Route, Servers, Tries

WITHOUT_BODIES: Final = """#!lua flags=no-writes
local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])
for _, entry in ipairs(found) do
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'body' then entry[2][i + 1] = '' end
  end
end
return found
"""
"""XRANGE of a log for those who need no bodies, which may be much larger than everything else."""

_log = logging.getLogger("stanzaq")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read: entries a command; whether dropped entries are a loss, and refused; the most rows a second; bodies."""

    count: int
    watched: bool
    refuse: bool
    rows_per_second: float | None = None
    bodies: bool = True


def report_lost(piece: Piece, missing: int | None, *, refuse: bool) -> None:
    """Report that records were lost unread: refuse, or warn and go on."""
    many = "records" if missing is None else f"{missing} records"
    what = f"journal of {piece.partition}: {many} after {piece.after} were dropped before they were read"
    if refuse:
        remedy = "read more often, raise JOURNAL_RECORDS, or go on without them (failOnDataLoss=false, report collect --lossy)"
        msg = f"{what}: {remedy}"
        raise Unreadable(msg)
    _log.warning("%s; reading goes on without them", what)


def fetch(
    servers: Servers, process: Process, pieces: Iterable[Piece], options: ReadOptions
) -> Iterator[tuple[Piece, Sequence[Entry]]]:
    """Yield the entries of each piece, in order; follows a stream when its slot moves to another process.

    When the connection breaks, it reads on from where it was.
    """
    pace, tries = _Pace(options.rows_per_second), Tries(servers.patience)
    readers = [_Reader(piece, options, pace) for piece in pieces]
    while not all(reader.done for reader in readers):
        try:
            for found in _read_on(servers, process, readers):
                tries.note_progress()
                yield found
        except Unreachable as error:
            tries.wait(error)


def _read_on(
    servers: Servers, process: Process, readers: Iterable["_Reader"]
) -> Iterator[tuple[Piece, Sequence[Entry]]]:
    """Read on over one connection, or over as many as slots have moved."""
    with Route(servers, process) as route:
        for reader in readers:
            while not reader.done:
                try:
                    for entries in reader.read(route.link):
                        yield reader.piece, entries
                except AskError as error:
                    route.follow(reader.piece.key, error)


class _Pace:
    """Keeps to a limit of rows a second; None: no limit."""

    def __init__(self, rows_per_second: float | None) -> None:
        """Start now."""
        self._rows_per_second = rows_per_second
        self._began = time.monotonic()
        self._rows = 0

    def max_rows(self, count: int) -> int:
        """Return how many rows to read at once: at most a second's worth."""
        return count if self._rows_per_second is None else max(1, min(count, int(self._rows_per_second)))

    def keep(self, rows: int) -> None:
        """Wait until this many more rows are within the limit."""
        if self._rows_per_second is not None:
            self._rows += rows
            time.sleep(max(0.0, self._began + self._rows / self._rows_per_second - time.monotonic()))


class _Reader:
    """The progress of one piece."""

    def __init__(self, piece: Piece, options: ReadOptions, pace: _Pace) -> None:
        """Start at the start of the piece."""
        self.piece = piece
        self._options = options
        self._pace = pace
        self._count = pace.max_rows(options.count)
        self._after = piece.after
        self._before = piece.before
        self.done = False

    def read(self, link: Link) -> Iterator[Sequence[Entry]]:
        """Read on, one request ahead of the consumer: Redis works while entries are decoded."""
        self._request(link, self._after)
        while not self.done:
            entries: Sequence[Entry] = link.receive()
            if self._options.watched:
                self._watch(_state(link.receive))
            after = Id.parse(entries[-1][0]) if entries else self._after
            # Nothing is requested after the end, so entries dropped after it do not count as lost.
            done = len(entries) < self._count or after >= self.piece.upto
            self._pace.keep(len(entries))
            if not done:
                self._request(link, after)
            # Only now: entries that were not given away are read again after a fault.
            self._after, self.done = after, done
            if self._before is not None:
                self._before += len(entries)
            if entries:
                yield entries

    def _request(self, link: Link, after: Id) -> None:
        between = f"({after}", str(self.piece.upto)
        if self._options.bodies:
            link.send("XRANGE", self.piece.key, *between, "COUNT", self._count)
        else:
            link.send("EVAL_RO", WITHOUT_BODIES, 1, self.piece.key, *between, self._count)
        if self._options.watched:
            link.send("XINFO", "STREAM", self.piece.key)

    def _watch(self, state: dict[bytes, Any] | None) -> None:
        """Check whether the stream has dropped entries after the position where the reply began; None: the stream is gone."""
        if state is None:
            report_lost(self.piece._replace(after=self._after), None, refuse=self._options.refuse)
            return
        gone = state[b"entries-added"] - state[b"length"]
        first = state[b"first-entry"]
        if self._before is not None:
            missing = gone - self._before
            if missing > 0:
                self._before = gone
                report_lost(self.piece._replace(after=self._after), missing, refuse=self._options.refuse)
        elif gone and (first is None or Id.parse(first[0]) > self._after.next()):
            report_lost(self.piece._replace(after=self._after), None, refuse=self._options.refuse)


def _state(receive: Callable[[], Any]) -> dict[bytes, Any] | None:
    try:
        pairs = receive()
    except AskError:
        raise
    except ResponseError:
        # Its node was deleted, with all records.
        return None
    return dict(zip(pairs[::2], pairs[1::2], strict=True))
