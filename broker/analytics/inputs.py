"""The inputs of a report, from Redis or a history: attempts of an interval, open deliveries, waiting items, census, gaps.

They are read once and kept, so that the whole report is of one snapshot. Must not know what is measured.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the usual name)

from broker import keys
from broker.analytics import census, history, processes
from broker.analytics.faults import Unreadable, translate_faults
from broker.analytics.source.options import Options
from broker.analytics.source.servers import Servers
from broker.analytics.source.snapshot import Bounds, snapshot
from broker.journal.schema import AGAIN, JournalPartition
from broker.scaling.usage import Usage

_COLUMNS: Final = (
    *("node", "incarnation", "partition", "position", "token", "type", "attempt", "subscriber", "bytes"),
    *("published", "delivered", "closed"),
)
"""The columns that a report uses, and those that identify an attempt. Keeping the others would double the memory."""

_ATTEMPT: Final = ("node", "incarnation", "partition", "position", "attempt")

_DAY: Final = timedelta(days=1)

_CLOCK_MS: Final = 60_000
"""How far a record's id may be from the time its attempt closed, in ms.

Redis makes the id a moment later, by the same clock. If that clock is set back, ids wait until it has caught up.
"""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The five tables, and the requested interval: from `first` and before `last` (None: unbounded).

    `attempts` closed at or after `first` and were published before `last`: an item published in the interval counts
    whenever it was delivered. `returned` are the attempts that ended before `first` and after which items waited for these.
    `earlier` says whether there are records from before the interval. `usage` are all samples of what processes used.
    """

    attempts: DataFrame
    in_flight: DataFrame
    waiting: DataFrame
    census: DataFrame
    gaps: DataFrame
    first: datetime | None
    last: datetime | None
    earlier: bool
    usage: tuple[Usage, ...] = ()
    returned: DataFrame | None = None


def of_redis(  # noqa: PLR0913  (what to read, and how)
    url: str,
    first: datetime | None = None,
    last: datetime | None = None,
    *,
    spark: SparkSession,
    read_from: str = "master",
    tell: Callable[[str], None] = lambda _: None,
) -> Inputs:
    """Read the records that Redis has now. Records lost during the read are a gap."""
    _check_order(first, last)
    servers, options = Servers(url, read_from), Options.read({"url": url, "keyPrefix": keys.prefix()})
    given = {"url": url, "keyPrefix": keys.prefix(), "readFrom": read_from, "failOnDataLoss": "false"}
    given["minPartitions"] = str(spark.sparkContext.defaultParallelism)
    # Redis skips what is certainly before the interval. Spark decides which rows are in it.
    since = {"startingTimestamp": str(max(1, _ms(first) - _CLOCK_MS))} if first else {}
    tell("reading the state of the queues")
    states = census.partition_states(servers, options)
    tell("reading the journals")
    before = snapshot(servers, options)
    attempts = _persist_rows(spark.read.format("stanzaq").options(**given, **since).load(), first, last)
    opened, returned = census.in_flight(spark, states), None
    if first:
        former = {"endingTimestamp": str(_ms(first) + _CLOCK_MS)}
        earlier = spark.read.format("stanzaq").options(**given, **former).load().where(F.col("closed") < first)
        returned = _find_returned(attempts, opened, earlier)
    gaps = _find_incomplete(before, snapshot(servers, options), first)
    waiting = census.waiting(spark, states, given).persist(StorageLevel.MEMORY_AND_DISK)
    _read(waiting)
    return Inputs(
        attempts,
        opened,
        waiting,
        census.census(spark, states),
        spark.createDataFrame(gaps, history.GAPS),
        first,
        last,
        earlier=any(
            bounds.gone or (bounds.first and first and bounds.first.ms < _ms(first)) for bounds in before.values()
        ),
        usage=processes.samples(servers),
        returned=returned,
    )


def of_history(
    path: str,
    first: datetime | None = None,
    last: datetime | None = None,
    *,
    spark: SparkSession,
    tell: Callable[[str], None] = lambda _: None,
) -> Inputs:
    """Read the records of a history."""
    _check_order(first, last)
    found = history.open_history(spark, path)
    tell("reading the history")
    kept = _persist_rows(found.table("attempts", first), first, last)
    opened = found.table("in_flight")
    former = found.table("attempts").where(F.col("closed") < first) if first else None
    return Inputs(
        kept,
        opened,
        found.table("waiting"),
        found.table("census"),
        found.table("gaps"),
        first,
        last,
        first is not None and _has_earlier(found, first),
        found.usage(first),
        None if former is None else _find_returned(kept, opened, former),
    )


def _has_earlier(found: history.History, first: datetime) -> bool:
    """Tell whether a history has records from before a time."""
    days = found.days("attempts")
    if days and days[0] < f"{first - _DAY:%Y-%m-%d}":
        return True
    return not found.table("attempts", first).where(F.col("closed") < first).isEmpty()


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _check_order(first: datetime | None, last: datetime | None) -> None:
    if first and first == last:
        msg = f"--from and --to are both {first:%Y-%m-%dT%H:%M:%SZ}: name a later --to"
        raise Unreadable(msg)
    if first and last and first > last:
        msg = f"--from {first:%Y-%m-%dT%H:%M:%SZ} is not before --to {last:%Y-%m-%dT%H:%M:%SZ}: exchange them"
        raise Unreadable(msg)


def _persist_rows(attempts: DataFrame, first: datetime | None, last: datetime | None) -> DataFrame:
    """Read all rows of an interval now and persist them; refuses when there are none."""
    if first:
        attempts = attempts.where(F.col("closed") >= first)
    if last:
        attempts = attempts.where(F.col("published") < last)
    kept = attempts.select(*_COLUMNS).persist(StorageLevel.MEMORY_AND_DISK)
    if not _read(kept):
        msg = f"no attempt was closed {span(first, last) or 'yet'}: choose another interval, or wait until work is done"
        raise Unreadable(msg)
    return kept


def _find_returned(attempts: DataFrame, in_flight: DataFrame, former: DataFrame) -> DataFrame | None:
    """Read from the attempts before an interval those after which items waited for attempts in it; None if none is missing."""
    again = attempts.select(*_ATTEMPT).unionByName(in_flight.select(*_ATTEMPT)).where("attempt > 1")
    before = again.withColumn("attempt", F.col("attempt") - 1)
    missing = before.join(attempts, [*_ATTEMPT], "left_anti").localCheckpoint()
    if missing.isEmpty():
        return None
    returned = former.where(F.col("type").isin(*AGAIN)).select(*_COLUMNS).join(missing, [*_ATTEMPT], "left_semi")
    kept = returned.persist(StorageLevel.MEMORY_AND_DISK)
    _read(kept)
    return kept


def span(first: datetime | None, last: datetime | None) -> str:
    """Write an interval as it was requested."""
    return " and ".join(f"{what} {at:%Y-%m-%dT%H:%M:%SZ}" for what, at in (("from", first), ("before", last)) if at)


def _read(kept: DataFrame) -> int:
    """Read persisted rows now; returns how many there are."""
    with translate_faults():
        return kept.count()


def _find_incomplete(
    before: dict[JournalPartition, Bounds], after: dict[JournalPartition, Bounds], first: datetime | None
) -> list[tuple[object, ...]]:
    """Find the journals that do not reach back to the beginning of the interval, or that lost records during the read."""
    noticed = datetime.now(UTC)
    since = _ms(first) if first else 0
    gaps: list[tuple[object, ...]] = []
    for partition, bounds in before.items():
        now = after.get(partition)
        gone = now.gone if now else bounds.added
        start = (now and now.first) or bounds.last
        if gone and since < start.ms:
            # The number is known only for an interval without a beginning.
            gaps.append((*partition, None, str(start), None if first else gone, noticed))
    return gaps
