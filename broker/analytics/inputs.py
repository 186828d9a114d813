"""What a report is made of: attempts of an interval, what waits, the census and the gaps; from Redis or from a history.

Reads it once and keeps it, so that what a report says is of one snapshot. Must not know what is measured.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
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
    """The four tables; attempts closed from `first` on and before `last` (None: without that bound)."""

    attempts: DataFrame
    waiting: DataFrame
    census: DataFrame
    gaps: DataFrame
    first: datetime | None
    last: datetime | None


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
    # Redis is spared what is surely outside the interval; which rows are in it is for Spark to say.
    bounds = {"startingTimestamp": first and _ms(first) - _CLOCK_MS, "endingTimestamp": last and _ms(last) + _CLOCK_MS}
    interval = {name: str(max(1, at)) for name, at in bounds.items() if at is not None}
    tell("looking at what waits")
    standing = census.standings(servers, options)
    tell("reading the journals")
    before = snapshot(servers, options)
    attempts = _kept(
        spark.read.format("stanzaq").options(**given, **interval).load().where(_within(first, last)), first, last
    )
    gaps = _trimmed(before, snapshot(servers, options), first, last)
    waiting = census.waiting(spark, standing, given).persist(StorageLevel.MEMORY_AND_DISK)
    _read(waiting)
    return Inputs(
        attempts, waiting, census.census(spark, standing), spark.createDataFrame(gaps, history.GAPS), first, last
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
    if "day" in attempts.columns:
        # Days are folders: those that are not asked for are not opened.
        attempts = attempts.where(_within(first, last, "day")).drop("day")
    return Inputs(
        _kept(attempts.where(_within(first, last)), first, last),
        history.table(spark, folder, "waiting", history.WAITING),
        history.table(spark, folder, "census", census.SCHEMA),
        history.table(spark, folder, "gaps", history.GAPS),
        first,
        last,
    )


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _ordered(first: datetime | None, last: datetime | None) -> None:
    if first and last and first >= last:
        msg = f"--from {first:%Y-%m-%dT%H:%M:%SZ} is not before --to {last:%Y-%m-%dT%H:%M:%SZ}: exchange them"
        raise Unreadable(msg)


def _within(first: datetime | None, last: datetime | None, column: str = "closed") -> Column:
    wanted = F.lit(True)  # noqa: FBT003  (a column, not a flag)
    if column == "day":
        first, last = first and first - _DAY, last and last + _DAY
    if first:
        wanted &= F.col(column) >= F.lit(first)
    if last:
        wanted &= F.col(column) < F.lit(last)
    return wanted


def _kept(attempts: DataFrame, first: datetime | None, last: datetime | None) -> DataFrame:
    """Read all rows now, and keep them; refuses when there are none."""
    kept = attempts.select(*_TOLD).persist(StorageLevel.MEMORY_AND_DISK)
    if not _read(kept):
        span = " and ".join(f"{what} {at:%Y-%m-%dT%H:%M:%SZ}" for what, at in (("from", first), ("before", last)) if at)
        msg = f"no attempt was closed {span or 'yet'}: choose another interval, or wait until work is done"
        raise Unreadable(msg)
    return kept


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
    before: dict[Place, Bounds], after: dict[Place, Bounds], first: datetime | None, last: datetime | None
) -> list[tuple[object, ...]]:
    """Find the journals that do not reach back to the beginning of the interval, or that lost records during the read."""
    noticed = datetime.now(UTC)
    since = first.timestamp() * 1000 if first else 0
    until = last.timestamp() * 1000 if last else float("inf")
    gaps: list[tuple[object, ...]] = []
    for place, bounds in before.items():
        now = after.get(place)
        gone = now.gone if now else bounds.added
        start = (now and now.first) or bounds.last
        if gone and since < start.ms and (bounds.first or start).ms < until:
            # Of how many records the interval lost nothing is known but when it has no beginning.
            gaps.append((*place, None, str(start), None if first else gone, noticed))
    return gaps
