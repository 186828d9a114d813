"""A collection: adds to a history what the journals have got since the last one. Must not know how a history is laid out."""

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from broker import keys
from broker.analytics import census, processes
from broker.analytics.faults import translate_faults
from broker.analytics.history import GAPS, USAGE, Commit, History, claim_history
from broker.analytics.source.offsets import ABSENT_MS, START, Offset
from broker.analytics.source.options import Options
from broker.analytics.source.pieces import Piece
from broker.analytics.source.plan import begin, deal, size
from broker.analytics.source.servers import Servers
from broker.analytics.source.snapshot import Bounds, snapshot
from broker.analytics.source.tasks import frame, tasks
from broker.journal.schema import JournalPartition
from broker.scaling.usage import Usage


@dataclass(frozen=True, slots=True)
class ShortestRetention:
    """The journal that will lose records first: how long it keeps one, and the time since the last collection (None: none)."""

    partition: JournalPartition
    keeps_s: float
    since_s: float | None

    @property
    def too_short(self) -> bool:
        """Tell whether records will be lost before the next collection, if it comes after the same time as this one."""
        return self.since_s is not None and self.keeps_s < self.since_s


@dataclass(frozen=True, slots=True)
class Collected:
    """Result of one collection: the number of new records, of records lost before they were read, and of journals now missing.

    What a missing journal had at the last collection was read then. `soonest` is the journal that will lose records first;
    None: no journal has enough records to tell.
    """

    records: int
    lost: int
    missing: int = 0
    soonest: ShortestRetention | None = None


@translate_faults()
def collect(  # noqa: PLR0913  (where from, where to, and how)
    url: str,
    out: str,
    *,
    spark: SparkSession,
    lossy: bool = False,
    keep: timedelta | None = None,
    read_from: str = "master",
    tell: Callable[[str], None] = lambda _: None,
) -> Collected:
    """Add to the history in `out` the records since the last collection, and the state of the queues now.

    Refuses if records were lost in between, unless `lossy`: then it notes the gap. Removes days older than `keep`, if
    given. `tell` is called with the progress.
    """
    history = claim_history(spark, out)
    given = {
        "url": url,
        "keyPrefix": keys.prefix(),
        "readFrom": read_from,
        "failOnDataLoss": "false" if lossy else "true",
    }
    servers, options, now = Servers(url, read_from), Options.read(given), datetime.now(UTC)
    # The state comes first: an attempt that ends meanwhile then also has a record, which proves that it ended.
    tell("reading the state of the queues")
    found = census.partition_states(servers, options)
    used = processes.samples(servers)
    tell("reading the journals")
    bounds = snapshot(servers, options)
    commit = history.drop_retired(now)
    pieces = _find_unread(commit, bounds)
    files, had = _read(history, pieces, bounds, options) if pieces else ({}, {})
    gaps = _find_gaps(pieces, bounds, had, now)
    unknown = [each for each in used if each.at_ms > commit.used.get(_process(each), -1)]
    for name, rows, schema in (("gaps", gaps, GAPS), ("process_usage", [astuple(each) for each in unknown], USAGE)):
        if rows:
            files |= history.add(name, spark.createDataFrame(rows, schema).coalesce(1))
    tell("writing the state of the queues")
    files |= history.add("in_flight", census.in_flight(spark, found))
    files |= history.add("waiting", census.waiting(spark, found, given))
    files |= history.add("census", census.census(spark, found).coalesce(1))
    absent = _find_absent(commit, bounds, int(now.timestamp() * 1000))
    former = [path for name in ("in_flight", "waiting") for path in history.paths(name)]
    now_ms = int(now.timestamp() * 1000)
    collected = replace(
        commit.exchange(former, files, now_ms),
        collected_ms=now_ms,
        used={_process(each): each.at_ms for each in sorted(used, key=lambda each: each.at_ms)},
        offsets=_carry_offsets(commit, bounds, absent),
        absent=absent,
    )
    made = history.put(collected)
    tell("merging files")
    made.tidy(keep, now)
    return Collected(
        records=sum(had.values()),
        lost=sum(gap[5] for gap in gaps),
        missing=len(collected.absent.keys() - commit.absent.keys()),
        soonest=_find_shortest_kept(commit, found, now_ms),
    )


def _find_unread(commit: Commit, bounds: Mapping[JournalPartition, Bounds]) -> list[Piece]:
    """Find what was not read of each journal; one that is new since the first collection is read from its very first record."""
    unknown = Offset(START, 0) if commit.number else Offset(START)
    starts = {partition: commit.offsets.get(str(partition)) for partition in bounds}
    pieces = [begin(bounds[partition], Offset.parse(text) if text else unknown) for partition, text in starts.items()]
    return [piece for piece in pieces if piece.after < piece.upto]


def _read(
    history: History, pieces: list[Piece], bounds: Mapping[JournalPartition, Bounds], options: Options
) -> tuple[dict[str, int], dict[JournalPartition, int]]:
    """Write the records of pieces to the history; returns the files, and how many there were of each journal."""
    sized = [(bounds[piece.partition].process, size(piece, bounds[piece.partition])) for piece in pieces]
    works = deal(sized, options.min_partitions)
    files = history.add("attempts", frame(history.spark, tasks(works, options), options))
    rows = history.read("attempts", list(files)).groupBy("node", "incarnation", "partition").count().collect()
    return files, {JournalPartition(*row[:3]): row[3] for row in rows}


def _find_gaps(
    pieces: list[Piece], bounds: Mapping[JournalPartition, Bounds], had: Mapping[JournalPartition, int], now: datetime
) -> list[tuple[Any, ...]]:
    """Find the records that this collection should have brought and did not, by journal."""
    gaps: list[tuple[Any, ...]] = []
    for piece in pieces:
        # A piece knows what came before it; a restored Redis may have counted less than was read of it.
        missing = bounds[piece.partition].added - (piece.before or 0) - had.get(piece.partition, 0)
        if missing > 0:
            gaps.append((*piece.partition, str(piece.after), str(piece.upto), missing, now))
    return gaps


def _find_absent(commit: Commit, bounds: Mapping[JournalPartition, Bounds], now_ms: int) -> dict[str, int]:
    """Return the known journals that are missing, and since when.

    Such a one may be of a deleted node, or of a Redis process that does not answer for it now.
    """
    missing = commit.offsets.keys() - {str(partition) for partition in bounds}
    since = {name: commit.absent.get(name, now_ms) for name in missing}
    return {name: at_ms for name, at_ms in since.items() if now_ms - at_ms < ABSENT_MS}


def _carry_offsets(
    commit: Commit, bounds: Mapping[JournalPartition, Bounds], absent: Mapping[str, int]
) -> dict[str, str]:
    """Return how far each journal is read now; one that is missing, as far as before."""
    offsets = {name: commit.offsets[name] for name in absent}
    for partition, each in bounds.items():
        former, end = commit.offsets.get(str(partition)), Offset(each.last, each.added)
        # An offset never goes back, though a restored Redis may.
        offsets[str(partition)] = former if former and Offset.parse(former).after >= end.after else str(end)
    return offsets


def _process(sample: Usage) -> str:
    return f"{sample.kind} {sample.name}"


def _find_shortest_kept(
    before: Commit, found: Mapping[JournalPartition, census.PartitionState], now_ms: int
) -> ShortestRetention | None:
    """Find the journal that keeps records for the shortest time at its fill rate so far."""
    keeping = {partition: state.keeps_s for partition, state in found.items() if state.keeps_s is not None}
    if not keeping:
        return None
    partition = min(keeping, key=lambda each: keeping[each])
    since = (now_ms - before.collected_ms) / 1000 if before.collected_ms else None
    return ShortestRetention(partition, keeping[partition], since)
