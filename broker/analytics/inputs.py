"""What a report is made of: attempts of an interval, what is open, what waits, the census and the gaps; of Redis or a history.

Reads it once and keeps it, so that what a report says is of one snapshot. Must not know what is measured.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (what everybody calls it)

from broker.analytics import census, history
from broker.analytics.faults import Unreadable, told
from broker.analytics.source.options import Options
from broker.analytics.source.servers import Servers
from broker.analytics.source.snapshot import Bounds, snapshot
from broker.journal.schema import Place

_TOLD: Final = (
    *("node", "incarnation", "partition", "position", "token", "type", "attempt", "subscriber", "bytes"),
    *("published", "delivered", "closed"),
)
"""The columns that a report speaks of, and what names an attempt: keeping the others would cost as much again."""

_DAY: Final = timedelta(days=1)

_CLOCK_MS: Final = 60_000
"""A record's id is given by the clock that says when its attempt closed, a moment later; one that is set back stops ids until
it has caught up. So far may both be apart."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The five tables, and the interval that is asked for: from `first` on and before `last` (None: without that bound).

    Of attempts there are those that closed from `first` on and were published before `last`: what was published in the
    interval counts wherever it was delivered. `earlier` says whether there are records from before the interval.
    """

    attempts: DataFrame
    in_flight: DataFrame
    waiting: DataFrame
    census: DataFrame
    gaps: DataFrame
    first: datetime | None
    last: datetime | None
    earlier: bool


def of_redis(  # noqa: PLR0913  (what is to be read, and how)
    url: str,
    first: datetime | None = None,
    last: datetime | None = None,
    *,
    spark: SparkSession,
    read_from: str = "master",
    tell: Callable[[str], None] = lambda _: None,
) -> Inputs:
    """Read what Redis has now; records that go meanwhile are a gap."""
    _ordered(first, last)
    servers, options = Servers(url, read_from), Options.read({"url": url})
    given = {"url": url, "readFrom": read_from, "failOnDataLoss": "false"}
    given["minPartitions"] = str(spark.sparkContext.defaultParallelism)
    # Redis is spared what is surely before the interval; which rows are in it is for Spark to say.
    since = {"startingTimestamp": str(max(1, _ms(first) - _CLOCK_MS))} if first else {}
    tell("looking at what waits")
    standing = census.standings(servers, options)
    tell("reading the journals")
    before = snapshot(servers, options)
    attempts = _kept(spark.read.format("stanzaq").options(**given, **since).load(), first, last)
    gaps = _trimmed(before, snapshot(servers, options), first)
    waiting = census.waiting(spark, standing, given).persist(StorageLevel.MEMORY_AND_DISK)
    _read(waiting)
    return Inputs(
        attempts,
        census.in_flight(spark, standing),
        waiting,
        census.census(spark, standing),
        spark.createDataFrame(gaps, history.GAPS),
        first,
        last,
        earlier=any(
            bounds.gone or (bounds.first and first and bounds.first.ms < _ms(first)) for bounds in before.values()
        ),
    )


def of_history(
    path: str,
    first: datetime | None = None,
    last: datetime | None = None,
    *,
    spark: SparkSession,
    tell: Callable[[str], None] = lambda _: None,
) -> Inputs:
    """Read what was collected."""
    _ordered(first, last)
    folder = history.opened(spark, path)
    tell("reading the history")
    attempts = history.table(spark, folder, "attempts", history.ATTEMPTS)
    earlier = first is not None and not attempts.where(F.col("closed") < first).isEmpty()
    if first and "day" in attempts.columns:
        # Days are folders: those that are not asked for are not opened.
        attempts = attempts.where(F.col("day") >= F.lit(first - _DAY))
    return Inputs(
        _kept(attempts, first, last),
        history.table(spark, folder, "in_flight", census.IN_FLIGHT),
        history.table(spark, folder, "waiting", history.WAITING),
        history.table(spark, folder, "census", census.SCHEMA),
        history.table(spark, folder, "gaps", history.GAPS),
        first,
        last,
        earlier,
    )


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _ordered(first: datetime | None, last: datetime | None) -> None:
    if first and last and first >= last:
        msg = f"--from {first:%Y-%m-%dT%H:%M:%SZ} is not before --to {last:%Y-%m-%dT%H:%M:%SZ}: exchange them"
        raise Unreadable(msg)


def _kept(attempts: DataFrame, first: datetime | None, last: datetime | None) -> DataFrame:
    """Read all rows of an interval now, and keep them; refuses when there are none."""
    if first:
        attempts = attempts.where(F.col("closed") >= first)
    if last:
        attempts = attempts.where(F.col("published") < last)
    kept = attempts.select(*_TOLD).persist(StorageLevel.MEMORY_AND_DISK)
    if not _read(kept):
        msg = f"no attempt was closed {span(first, last) or 'yet'}: choose another interval, or wait until work is done"
        raise Unreadable(msg)
    return kept


def span(first: datetime | None, last: datetime | None) -> str:
    """Write an interval as it was asked for."""
    return " and ".join(f"{what} {at:%Y-%m-%dT%H:%M:%SZ}" for what, at in (("from", first), ("before", last)) if at)


def _read(kept: DataFrame) -> int:
    """Let rows that are to be kept be read now; gives how many they are."""
    try:
        return kept.count()
    except PySparkException as error:
        line = told(error)
        if line is None:
            raise
        raise Unreadable(line) from error


def _trimmed(
    before: dict[Place, Bounds], after: dict[Place, Bounds], first: datetime | None
) -> list[tuple[object, ...]]:
    """Find the journals that do not reach back to the beginning of the interval, or that lost records during the read."""
    noticed = datetime.now(UTC)
    since = _ms(first) if first else 0
    gaps: list[tuple[object, ...]] = []
    for place, bounds in before.items():
        now = after.get(place)
        gone = now.gone if now else bounds.added
        start = (now and now.first) or bounds.last
        if gone and since < start.ms:
            # Of how many records the interval lost nothing is known but when it has no beginning.
            gaps.append((*place, None, str(start), None if first else gone, noticed))
    return gaps
