"""The data source as a stream: `spark.readStream.format("stanzaq")`, increment by increment. Knows Spark's side.

An offset is, for each partition, the last entry read and how many had been added by then; so it is known exactly how many
went unread, also when a partition was idle until its records were too old to keep.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from broker.analytics.faults import Unreadable
from broker.analytics.source.fetch import lost
from broker.analytics.source.offsets import START, Id, Offset
from broker.analytics.source.options import LATEST, Options
from broker.analytics.source.pieces import Piece
from broker.analytics.source.plan import begin, deal, size
from broker.analytics.source.servers import Link, Process, Servers
from broker.analytics.source.snapshot import Bounds, reach, snapshot
from broker.analytics.source.tasks import STREAMS, rows, tasks
from broker.journal.schema import Place

Told = dict[str, str]
"""Offsets as Spark keeps them: JSON."""


class Increments(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what has come since the last time."""

    def __init__(self, options: Options) -> None:
        """Read as the options say."""
        if options.ending_offsets != LATEST or options.ending_timestamp is not None:
            msg = "a stream has no end: leave out endingOffsets and endingTimestamp, or use spark.read"
            raise Unreadable(msg)
        self._options = options
        self._servers = Servers(options.url, options.read_from)
        self._target: Mapping[Place, Bounds] | None = None

    def initialOffset(self) -> Told:  # noqa: N802  (Spark's name, here and below)
        """Give where the first increment begins; a partition that is not named begins with its first record."""
        starts = self._options.starting_offsets
        if not isinstance(starts, str):
            return {place: str(offset) for place, offset in starts.items()}
        if self._options.starting_timestamp is not None:
            after = Id(self._options.starting_timestamp).before()
            return {str(place): str(Offset(after)) for place in self._snapshot()}
        found = self._snapshot()
        if starts == LATEST:
            return _ends(found)
        pieces = [begin(bounds, Offset(START)) for bounds in found.values()]
        return {str(piece.place): str(Offset(piece.after, piece.before)) for piece in pieces}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Give the most that an increment may have."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note how far there is something now: what comes later is not waited for."""
        self._target = self._snapshot()

    def reportLatestOffset(self) -> Told:  # noqa: N802
        """Give how far there is something, for Spark to tell how far behind it is."""
        return _ends(self._snapshot())

    def latestOffset(self, start: Told, limit: ReadLimit) -> Told:  # noqa: N802
        """Give where the next increment ends; with a limit it has exactly so many entries, if there are as many."""
        found = self._snapshot() if self._target is None else self._target
        if isinstance(limit, ReadMaxRows):
            return self._limited(start, found, limit.max_rows)
        ends = _ends(found)
        # It never goes back, though a restored Redis may.
        return {place: end if _behind(start, place, end) else start[place] for place, end in ends.items()}

    def partitions(self, start: Told, end: Told) -> Sequence[InputPartition]:
        """Deal an increment out to tasks."""
        found = {str(place): bounds for place, bounds in self._snapshot().items()}
        # A log goes with its node; a journal may take along what nobody has read.
        if STREAMS[self._options.stream].watched:
            for name in sorted({*start, *end} - found.keys()):
                self._gone(name, start)
        sized = []
        for name, text in end.items():
            bounds = found.get(name)
            if bounds is None:
                continue
            piece = begin(bounds, _start(start, name))._replace(upto=Offset.parse(text).after)
            if piece.after < piece.upto:
                sized.append((bounds.process, size(piece, bounds)))
        return tasks(deal(sized, self._options.min_partitions), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read what one task is to read."""
        return rows(self._options, partition)

    def _snapshot(self) -> dict[Place, Bounds]:
        return snapshot(self._servers, self._options)

    def _gone(self, name: str, start: Told) -> None:
        """Say of a stream that was there that it is not: its node was deleted, and with it what was not read."""
        after = _start(start, name).after
        piece = Piece(Place.parse(name), "", after, after, None)
        lost(piece, None, refuse=self._options.fail_on_data_loss)

    def _limited(self, start: Told, found: Mapping[Place, Bounds], most: int) -> Told:
        ends = {str(place): _start(start, str(place)) for place in found}
        behind = [bounds for bounds in found.values() if ends[str(bounds.place)].after < bounds.last]
        # Whoever lags most is first, so that none is passed over for ever when there are more of them than rows.
        behind.sort(key=lambda bounds: ends[str(bounds.place)].after)
        with ExitStack() as stack:
            links: dict[Process, Link] = {}
            while most and behind:
                further = []
                for number, bounds in enumerate(behind):
                    share = -(-most // (len(behind) - number))
                    if bounds.process not in links:
                        links[bounds.process] = stack.enter_context(self._servers.link(bounds.process))
                    piece = begin(bounds, ends[str(bounds.place)])
                    count, offset = reach(links[bounds.process], piece, share)
                    most -= count
                    # Once all is counted, the end is where the stream ended, also when there was nothing left to count.
                    whole = count < share
                    ends[str(bounds.place)] = Offset(bounds.last, bounds.added) if whole else offset
                    further += [] if whole else [bounds]
                behind = further
        return {name: str(offset) for name, offset in ends.items()}


def _start(start: Told, name: str) -> Offset:
    """Give where a partition is to be read from; one that came to be since the last increment, from its very first entry."""
    text = start.get(name)
    if text is not None:
        return Offset.parse(text)
    return Offset(START, 0 if start else None)


def _ends(found: Mapping[Place, Bounds]) -> Told:
    return {str(place): str(Offset(bounds.last, bounds.added)) for place, bounds in found.items()}


def _behind(start: Told, place: str, end: str) -> bool:
    return place not in start or Offset.parse(start[place]).after < Offset.parse(end).after
