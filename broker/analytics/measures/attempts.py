"""Delivery attempts with their waits: the table from which every other measure starts.

Knows the columns of the data source. Turns times into whole milliseconds, their precision.
"""

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the usual name)
from pyspark.storagelevel import StorageLevel

from broker.analytics.span import Span
from broker.journal.schema import AGAIN, AttemptEnd

_ITEM: Final = ("node", "incarnation", "partition", "position")
"""The columns that identify an item."""


def add_waits(attempts: DataFrame, earlier: DataFrame | None = None) -> DataFrame:
    """Add to each attempt when its item became ready for it; null when that record is gone.

    The item is ready for its first attempt from its publish, for any other from the end of the attempt before, which is
    among the attempts or, if that was before the interval, among the `earlier` ones. Only the others, which are few, are
    shuffled for the join and persisted. First attempts stay where they are.

    Where Redis's clock was set back meanwhile, that step took no time, and the later ones follow it by their own times:
    an attempt is never delivered before it was ready, nor closed before it was delivered.
    """
    lean = attempts.select(
        *(*_ITEM, "subscriber", "type", "attempt", "bytes"),
        *(F.unix_millis(name).alias(name) for name in ("published", "delivered", "closed")),
    )
    first = lean.where("attempt = 1").withColumn("ready", F.col("published"))
    before = (
        (attempts if earlier is None else attempts.unionByName(earlier))
        .where(F.col("type").isin(*AGAIN))
        .select(*_ITEM, (F.col("attempt") + 1).alias("attempt"), F.unix_millis("closed").alias("ready"))
    )
    again = lean.where("attempt > 1").join(before, [*_ITEM, "attempt"], "left").persist(StorageLevel.MEMORY_AND_DISK)
    timed = first.unionByName(again).select(
        *(*_ITEM, "subscriber", "type", "attempt", "bytes", "published", "ready"),
        F.coalesce(F.col("ready") + _between("ready", "delivered"), "delivered").alias("delivered"),
        _between("ready", "delivered").alias("wait_ms"),
        _between("delivered", "closed").alias("held_ms"),
    )
    timed = timed.withColumn("closed", F.col("delivered") + F.col("held_ms"))
    return timed.withColumn("end_to_end_ms", if_acknowledged(_between("published", "closed")))


def _between(begin: str, end: str) -> Column:
    """Return the time between two columns; none where Redis's clock was set back meanwhile, null where one is unknown."""
    past = F.col(end) - F.col(begin)
    return F.when(past < 0, F.lit(0)).otherwise(past)


def add_open(attempts: DataFrame, in_flight: DataFrame, since: datetime | None) -> DataFrame:
    """Add the open deliveries, which have no record yet. Those that closed since `since` have one and are left out."""
    meanwhile = attempts.where(F.col("closed") >= F.lit(since)).select(*_ITEM, "attempt")
    still = in_flight.join(F.broadcast(meanwhile), [*_ITEM, "attempt"], "left_anti")
    return attempts.unionByName(still, allowMissingColumns=True)


def keep_closed_in(attempts: DataFrame, span: Span) -> DataFrame:
    """Keep the attempts that closed in an interval."""
    return attempts.where(F.col("closed").between(span.begin, span.end - 1))


def drop_perished(attempts: DataFrame) -> DataFrame:
    """Leave out items that expired before anybody got them (`perished`)."""
    return attempts.where(F.col("type") != AttemptEnd.PERISHED.value)


def count_perished(attempts: DataFrame) -> DataFrame:
    """Count the items of a node that expired before anybody got them."""
    return (
        attempts.where(F.col("type") == AttemptEnd.PERISHED.value).groupBy("node").agg(F.count("*").alias("perished"))
    )


def waiting_since(waiting: DataFrame, attempts: DataFrame, since: datetime | None) -> DataFrame:
    """Return since when each waiting item waits, and whether for its first delivery.

    Leaves out items that were finished since `since`.
    """
    done = attempts.where(~F.col("type").isin(*AGAIN) & (F.col("closed") >= F.unix_millis(F.lit(since))))
    waiting = waiting.join(
        F.broadcast(done.select(*_ITEM).withColumnRenamed("position", "offset")), [*_ITEM[:-1], "offset"], "left_anti"
    )
    back = (
        attempts.where(F.col("type").isin(*AGAIN))
        .groupBy(*_ITEM)
        .agg(F.max("closed").alias("returned"))
        .withColumnRenamed("position", "offset")
    )
    return waiting.join(back, [*_ITEM[:-1], "offset"], "left").select(
        "node",
        F.unix_millis("published").alias("published"),
        F.coalesce("returned", F.unix_millis("published")).alias("ready"),
        F.col("returned").isNull().alias("first"),
    )


def if_acknowledged(value: Column) -> Column:
    """Keep a value for acknowledged attempts; null for the others, which aggregates ignore."""
    return F.when(F.col("type") == AttemptEnd.ACKNOWLEDGED.value, value)
