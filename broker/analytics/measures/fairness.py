"""How evenly work is spread over subscribers and partitions."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from broker.analytics.measures.attempts import acknowledged

_SHOWN: Final = 100
"""Subscribers and partitions of a node that are shown one by one; evenness is of all of them."""


def shares(attempts: DataFrame, by: str) -> DataFrame:
    """Give per node and subscriber (or partition) its attempts, its share of them, and how they went."""
    of_node = Window.partitionBy("node")
    return (
        attempts.groupBy("node", by)
        .agg(
            F.count("*").alias("attempts"),
            F.count(acknowledged(F.lit(1))).alias("acknowledged"),
            F.avg("wait_ms").alias("wait_ms"),
            F.avg("held_ms").alias("held_ms"),
        )
        .withColumn("share", F.col("attempts") / F.sum("attempts").over(of_node))
    )


def foremost(table: DataFrame, by: str) -> DataFrame:
    """Keep the busiest of each node, the busiest first."""
    order = Window.partitionBy("node").orderBy(F.desc("attempts"), by)
    return table.withColumn("rank", F.row_number().over(order)).where(F.col("rank") <= _SHOWN).orderBy("node", "rank")


def evenness(table: DataFrame) -> DataFrame:
    """Give per node how many share the work, Jain's index of it (1: evenly; 1/n: one has all), and the greatest share.

    `skew` is that greatest share over an even one.
    """
    attempts = F.col("attempts")
    return table.groupBy("node").agg(
        F.count("*").alias("sharers"),
        (F.pow(F.sum(attempts), F.lit(2)) / (F.count("*") * F.sum(attempts * attempts))).alias("jain"),
        (F.max(attempts) / F.avg(attempts)).alias("skew"),
    )
