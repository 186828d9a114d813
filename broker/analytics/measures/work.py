"""How deliveries ended, how long they held their workers, and how evenly they are spread over subscribers and partitions."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from broker.analytics.measures.attempts import if_acknowledged
from broker.journal.schema import AttemptEnd

_ENDS: Final = {kind.value: kind.value.replace("-", "_") for kind in AttemptEnd if kind is not AttemptEnd.PERISHED}
_SUMS: Final = ("attempts", "items", "bytes", *_ENDS.values(), "waits", "wait_ms", "held_s", "useful_s", "squares")

_SHOWN: Final = 100
"""The most subscribers and partitions of a node to list. Evenness is computed over all."""


def tally(attempts: DataFrame) -> DataFrame:
    """Add up by node, partition and subscriber everything that the other measures here need."""
    held_s = F.col("held_ms") / 1000
    return attempts.groupBy("node", "partition", "subscriber").agg(
        F.count("*").alias("attempts"),
        _number(F.col("attempt") == 1).alias("items"),
        F.sum("bytes").alias("bytes"),
        *(_number(F.col("type") == kind).alias(name) for kind, name in _ENDS.items()),
        F.count("wait_ms").alias("waits"),
        F.coalesce(F.sum("wait_ms"), F.lit(0)).alias("wait_ms"),
        F.sum(held_s).alias("held_s"),
        F.coalesce(F.sum(if_acknowledged(held_s)), F.lit(0.0)).alias("useful_s"),
        F.sum(held_s * held_s).alias("squares"),
    )


def work(tallied: DataFrame) -> DataFrame:
    """Return by node the attempts by how they ended, the time they took, and how much that varied."""
    mean = F.col("held_s") / F.col("attempts")
    # Variance over squared mean; 0 for work that takes no time. Rounding may go below 0.
    variation = F.when(mean > 0, F.greatest(F.col("squares") / F.col("attempts") / (mean * mean) - 1, F.lit(0.0)))
    return _sums(tallied, "node").withColumn("held_variation", F.coalesce(variation, F.lit(0.0)))


def shares(tallied: DataFrame, by: str) -> DataFrame:
    """Return by node and `by` (subscriber or partition) the attempts, their share, and their mean times."""
    return _sums(tallied, "node", by).select(
        *("node", by, "attempts", "acknowledged"),
        F.when(F.col("waits") > 0, F.col("wait_ms") / F.col("waits")).alias("wait_ms"),
        (F.col("held_s") * 1000 / F.col("attempts")).alias("held_ms"),
        (F.col("attempts") / F.sum("attempts").over(Window.partitionBy("node"))).alias("share"),
    )


def busiest(shared: DataFrame, by: str) -> DataFrame:
    """Keep the busiest of each node, the busiest first."""
    order = Window.partitionBy("node").orderBy(F.desc("attempts"), by)
    return shared.withColumn("rank", F.row_number().over(order)).where(F.col("rank") <= _SHOWN).orderBy("node", "rank")


def evenness(shared: DataFrame) -> DataFrame:
    """Return by node the number of sharers, Jain's index (1: even; 1/n: one has everything), and the skew.

    `skew` is the greatest share over the mean share.
    """
    attempts = F.col("attempts")
    return shared.groupBy("node").agg(
        F.count("*").alias("sharers"),
        (F.pow(F.sum(attempts), F.lit(2)) / (F.count("*") * F.sum(F.pow(attempts, F.lit(2))))).alias("jain"),
        (F.max(attempts) / F.avg(attempts)).alias("skew"),
    )


def _sums(tallied: DataFrame, *by: str) -> DataFrame:
    return tallied.groupBy(*by).agg(*(F.sum(name).alias(name) for name in _SUMS))


def _number(condition: Column) -> Column:
    return F.sum(condition.cast("int"))
