"""What became of deliveries, how long they held their workers, and what of that was for nothing."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from broker.analytics.measures.attempts import acknowledged
from broker.journal.schema import Kind


def work(attempts: DataFrame) -> DataFrame:
    """Give per node the attempts by how they ended, the time that they took, and how much it varied."""
    held_s = F.col("held_ms") / 1000
    return attempts.groupBy("node").agg(
        F.count("*").alias("attempts"),
        F.sum((F.col("attempt") == 1).cast("int")).alias("items"),
        F.sum("bytes").alias("bytes"),
        *(_number(F.col("type") == kind.value).alias(kind.value.replace("-", "_")) for kind in Kind),
        _number(F.col("attempt") > 1).alias("redelivered"),
        _number(F.col("ready").isNull()).alias("waits_unknown"),
        F.sum(held_s).alias("held_s"),
        F.coalesce(F.sum(acknowledged(held_s)), F.lit(0.0)).alias("useful_s"),
        # Variance over mean squared; of a held time that is always 0 there is none to speak of.
        F.coalesce(F.var_pop(held_s) / F.pow(F.avg(held_s), F.lit(2)), F.lit(0.0)).alias("held_variation"),
    )


def _number(condition: Column) -> Column:
    return F.sum(condition.cast("int"))
