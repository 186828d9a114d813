"""Delivery attempts with all that each can tell of its wait: the table that every other measure starts from.

Knows the columns of the data source. Times become whole milliseconds, which is what they are.
"""

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)
from pyspark.storagelevel import StorageLevel

from broker.analytics.span import Span
from broker.journal.schema import Kind

AGAIN: Final = (Kind.RELEASED.value, Kind.EXPIRED.value, Kind.BOUNCED.value)
"""The kinds of ends after which an item waits again."""

_ITEM: Final = ("node", "incarnation", "partition", "position")
"""The columns that name one item."""


def with_waits(attempts: DataFrame) -> DataFrame:
    """Say of each attempt since when the item was ready for it; null when that record is gone.

    A first attempt is ready from the publish on, any other from the close of the one before. Only those others, which are
    few, are moved about to meet it, and kept; whoever asks for first attempts has them straight from where they are.
    """
    lean = attempts.select(
        *(*_ITEM, "subscriber", "type", "attempt", "bytes"),
        *(F.unix_millis(name).alias(name) for name in ("published", "delivered", "closed")),
    )
    first = lean.where("attempt = 1").withColumn("ready", F.col("published"))
    before = lean.where(F.col("type").isin(*AGAIN)).select(
        *_ITEM, (F.col("attempt") + 1).alias("attempt"), F.col("closed").alias("ready")
    )
    again = lean.where("attempt > 1").join(before, [*_ITEM, "attempt"], "left").persist(StorageLevel.MEMORY_AND_DISK)
    return first.unionByName(again).select(
        *(*_ITEM, "subscriber", "type", "attempt", "bytes", "published", "ready", "delivered", "closed"),
        (F.col("delivered") - F.col("ready")).alias("wait_ms"),
        (F.col("closed") - F.col("delivered")).alias("held_ms"),
        acknowledged(F.col("closed") - F.col("published")).alias("end_to_end_ms"),
    )


def with_open(attempts: DataFrame, in_flight: DataFrame, since: datetime | None) -> DataFrame:
    """Add the deliveries that are open, which have no record yet; those that were closed meanwhile, from `since` on, have."""
    meanwhile = attempts.where(F.col("closed") >= F.lit(since)).select(*_ITEM, "attempt")
    still = in_flight.join(F.broadcast(meanwhile), [*_ITEM, "attempt"], "left_anti")
    return attempts.unionByName(still, allowMissingColumns=True)


def closed_in(attempts: DataFrame, span: Span) -> DataFrame:
    """Keep what was closed in an interval."""
    return attempts.where(F.col("closed").between(span.begin, span.end - 1))


def made(attempts: DataFrame) -> DataFrame:
    """Leave out the records of items that perished: nobody was handed them."""
    return attempts.where(F.col("type") != Kind.PERISHED.value)


def perished(attempts: DataFrame) -> DataFrame:
    """Count these per node."""
    return attempts.where(F.col("type") == Kind.PERISHED.value).groupBy("node").agg(F.count("*").alias("perished"))


def waiting_since(waiting: DataFrame, attempts: DataFrame, since: datetime | None) -> DataFrame:
    """Say of each item that waits since when it does, and whether it waits for its first delivery.

    What was done with meanwhile, from `since` on, waits no more.
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


def acknowledged(value: Column) -> Column:
    """Keep a value of the attempts that ended well; null for the others, which aggregates pass over."""
    return F.when(F.col("type") == Kind.ACKNOWLEDGED.value, value)
