"""The data source as a stream: `spark.readStream.format("stanzaq")`, increment by increment. Knows Spark's side.

An offset is, for each partition, the last entry read and how many had been added until then. So the number of unread
entries is exact, even when a partition was idle until its records were dropped for their age, or was missing for a time.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from broker.analytics.faults import Unreadable
from broker.analytics.source.fetch import report_lost
from broker.analytics.source.offsets import ABSENT_MS, START, Id, Offset
from broker.analytics.source.options import LATEST, Options
from broker.analytics.source.pieces import Piece
from broker.analytics.source.plan import begin, deal, size
from broker.analytics.source.servers import Process, Route, Servers
from broker.analytics.source.snapshot import Bounds, reach, snapshot
from broker.analytics.source.tasks import STREAMS, rows, tasks
from broker.journal.schema import JournalPartition

SparkOffsets = dict[str, str]
"""Offsets as Spark stores them: JSON."""

_ABSENT: Final = " absent since "
"""Follows the offset of a stream that is missing, before the time in ms, in increments that were read without it."""


class Increments(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the entries since the last increment."""

    def __init__(self, options: Options) -> None:
        """Check the options; nothing is connected."""
        if options.ending_offsets != LATEST or options.ending_timestamp or options.ending_offsets_by_timestamp:
            msg = "a stream has no end: leave out endingOffsets… and endingTimestamp, or use spark.read"
            raise Unreadable(msg)
        self._options = options
        self._servers = Servers(options.url, options.read_from, options.patience)
        self._target: Mapping[JournalPartition, Bounds] | None = None
        self._last: float | None = None

    def initialOffset(self) -> SparkOffsets:  # noqa: N802  (Spark's name, here and below)
        """Return where the first increment begins; a partition that is not named begins with its first record."""
        starts = self._options.starting_offsets
        if not isinstance(starts, str):
            return {partition: str(offset) for partition, offset in starts.items()}
        found = self._snapshot()
        pieces = [begin(bounds, Offset(START)) for bounds in found.values()]
        first = {str(piece.partition): str(Offset(piece.after, piece.before)) for piece in pieces}
        times = {partition: ms for partition in found if (ms := self._options.first_ms(partition)) is not None}
        from_times = {str(partition): str(Offset(Id(ms).predecessor())) for partition, ms in times.items()}
        return (_end_offsets(found) if starts == LATEST else first) | from_times

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the size limit of an increment."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note where the streams end now: later entries are not waited for."""
        self._target = self._snapshot()

    def reportLatestOffset(self) -> SparkOffsets:  # noqa: N802
        """Return where the streams end, from which Spark computes its lag."""
        return _end_offsets(self._snapshot())

    def latestOffset(self, start: SparkOffsets, limit: ReadLimit) -> SparkOffsets:  # noqa: N802
        """Return where the next increment ends. With a limit it has exactly that many entries, if there are as many."""
        found = self._snapshot() if self._target is None else self._target
        if self._target is None and self._waits_for_more(start, found):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = self._servers.persist(partial(self._limit, start, found, limit.max_rows))
        else:
            # An offset never goes back, though a restored Redis may.
            ends = {
                name: end if _behind(start, name, end) else str(_start(start, name))
                for name, end in _end_offsets(found).items()
            }
        return _carry(start, int(time.time() * 1000)) | ends

    def partitions(self, start: SparkOffsets, end: SparkOffsets) -> Sequence[InputPartition]:
        """Split an increment into tasks."""
        found = {str(partition): bounds for partition, bounds in self._snapshot().items()}
        # Losing a log with its node is no data loss. A journal may take unread records with it.
        if STREAMS[self._options.stream].watched:
            for name in sorted({*start, *end} - found.keys()):
                if _ABSENT not in start.get(name, ""):
                    self._report_deleted(name, start)
        sized = []
        for name in end:
            bounds = found.get(name)
            if bounds is None:
                continue
            piece = begin(bounds, _start(start, name))._replace(upto=_start(end, name).after)
            if piece.after < piece.upto:
                sized.append((bounds.process, size(piece, bounds)))
        return tasks(deal(sized, self._options.min_partitions), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task."""
        return rows(self._options, partition)

    def _snapshot(self) -> dict[JournalPartition, Bounds]:
        return snapshot(self._servers, self._options)

    def _report_deleted(self, name: str, start: SparkOffsets) -> None:
        """Report a stream that is gone: its node was deleted, with the entries that were not read."""
        after = _start(start, name).after
        piece = Piece(JournalPartition.parse(name), "", after, after, None)
        report_lost(piece, None, refuse=self._options.fail_on_data_loss)

    def _waits_for_more(self, start: SparkOffsets, found: Mapping[JournalPartition, Bounds]) -> bool:
        """Tell whether there are too few entries yet for an increment, and the last was not too long ago."""
        least = self._options.min_offsets_per_trigger
        if least is None:
            return False
        unread = sum(_count_unread(_start(start, str(partition)), bounds) for partition, bounds in found.items())
        now = time.monotonic()
        if unread < least and self._last is not None and now - self._last < self._options.max_trigger_delay:
            return True
        self._last = now
        return False

    def _limit(self, start: SparkOffsets, found: Mapping[JournalPartition, Bounds], most: int) -> SparkOffsets:
        ends = {str(partition): _start(start, str(partition)) for partition in found}
        behind = [bounds for bounds in found.values() if ends[str(bounds.partition)].after < bounds.last]
        # The one that lags most is first, so that none starves when there are more partitions than rows.
        behind.sort(key=lambda bounds: ends[str(bounds.partition)].after)
        with ExitStack() as stack:
            routes: dict[Process, Route] = {}
            while most and behind:
                further = []
                for number, bounds in enumerate(behind):
                    share = -(-most // (len(behind) - number))
                    if bounds.process not in routes:
                        routes[bounds.process] = stack.enter_context(Route(self._servers, bounds.process))
                    piece = begin(bounds, ends[str(bounds.partition)])
                    count, offset = routes[bounds.process].ask(piece.key, partial(reach, piece=piece, most=share))
                    most -= count
                    # Once all entries are counted, even if there were none, the offset is the end of the stream.
                    whole = count < share
                    ends[str(bounds.partition)] = Offset(bounds.last, bounds.added) if whole else offset
                    further += [] if whole else [bounds]
                behind = further
        return {name: str(offset) for name, offset in ends.items()}


def _start(start: SparkOffsets, name: str) -> Offset:
    """Return where to read a partition from; one that was created since the last increment, from its very first entry."""
    text = start.get(name)
    if text is not None:
        return Offset.parse(text.partition(_ABSENT)[0])
    return Offset(START, 0 if start else None)


def _count_unread(offset: Offset, bounds: Bounds) -> int:
    """Count the entries after an offset, or estimate them if it does not say how many were before it."""
    piece = begin(bounds, offset)
    return size(piece, bounds).rows if piece.before is None else bounds.added - max(piece.before, bounds.gone)


def _carry(start: SparkOffsets, now_ms: int) -> SparkOffsets:
    """Mark offsets as those of missing streams, which may come back and are then read from where they were."""
    marked = {name: text if _ABSENT in text else f"{text}{_ABSENT}{now_ms}" for name, text in start.items()}
    return {name: text for name, text in marked.items() if now_ms - int(text.partition(_ABSENT)[2]) < ABSENT_MS}


def _end_offsets(found: Mapping[JournalPartition, Bounds]) -> SparkOffsets:
    return {str(partition): str(Offset(bounds.last, bounds.added)) for partition, bounds in found.items()}


def _behind(start: SparkOffsets, partition: str, end: str) -> bool:
    return partition not in start or _start(start, partition).after < Offset.parse(end).after
