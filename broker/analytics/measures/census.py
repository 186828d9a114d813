"""Measures of the census: waiting and in-flight items now, credit, and how full Redis and the journal are.

Only the last collection says what there is now: a partition that is not in it was deleted.
"""

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

_PARTITION = ("node", "incarnation", "partition")


def present(census: DataFrame) -> DataFrame:
    """Sum up, by node, the rows of its partitions."""
    free = F.when(F.col("maxmemory") > 0, F.col("maxmemory") - F.col("used_memory"))
    return (
        _last(census)
        .groupBy("node")
        .agg(
            F.max(F.unix_millis("at")).alias("at"),
            F.count("*").alias("partitions"),
            *(F.sum(name).alias(name) for name in ("waiting", "in_flight", "credit")),
            # A subscriber of a node counts in each of its partitions.
            F.max("subscribers").alias("subscribers"),
            (F.max(F.unix_millis("at") - F.unix_millis("oldest")) / 1000).alias("oldest_s"),
            F.min(free).alias("free_bytes"),
            F.sum("journal_max").alias("journal_max"),
            *(F.max(name).alias(name) for name in ("limits", "retry_delay", "policies")),
        )
    )


def credits_over_time(census: DataFrame, begin_ms: int, end_ms: int | None) -> DataFrame:
    """Return by node the credit of each census between two times; without an end, up to now."""
    at = F.unix_millis("at")
    return (
        census.where((at >= begin_ms) & (F.lit(end_ms).isNull() | (at < F.lit(end_ms))))
        .groupBy("node", "collected")
        .agg(F.max(F.unix_millis("at")).alias("at"), F.sum("credit").alias("credit"))
        .orderBy("at")
    )


def find_start(census: DataFrame) -> datetime | None:
    """Return the start of the last census; None when there are no partitions."""
    [row] = _last(census).agg(F.min("at").alias("at")).collect()
    at: datetime | None = row.at
    return at


def _last(census: DataFrame) -> DataFrame:
    """Return the rows of the last collection."""
    last = census.agg(F.max("collected").alias("collected"))
    return census.join(F.broadcast(last), "collected")


def memory(census: DataFrame) -> DataFrame:
    """Return by node how fast the memory of its Redis fills, in bytes a second; null from a single census."""
    slope: Column = F.regr_slope("used_memory", F.unix_millis("at") / 1000)
    fills = census.groupBy(*_PARTITION).agg(slope.alias("slope"))
    return fills.groupBy("node").agg(F.max("slope").alias("memory_per_s"))
