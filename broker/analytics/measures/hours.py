"""What each hour brought to a node: arrivals, work, and how many items waited longer than the target.

Hours are whole ones since 1970; an attempt belongs to the hour in which its item became ready for it.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from broker.analytics.span import Span
from broker.journal.schema import AttemptEnd

HOUR_MS: Final = 3_600_000


def hours(attempts: DataFrame, waiting: DataFrame, span: Span, target_ms: float) -> DataFrame:
    """Return by node and hour (its number since 1970) the counts and sums of what became ready in it.

    `work_ms` is how long the `served` ones took, `late` how many waits are longer than the target, those that last until the
    end of the interval among them. `begin` is when the first item of the hour was ready.
    """
    kind, wait = F.col("type"), F.col("wait_ms")
    perished = kind.eqNullSafe(AttemptEnd.PERISHED.value)
    ready = F.coalesce("ready", "delivered")
    tried = attempts.where(ready < span.end).select(
        "node",
        ready.alias("ready"),
        (F.col("attempt") == 1).cast("int").alias("arrived"),
        F.coalesce("held_ms", span.end - F.col("delivered")).alias("work_ms"),
        (~perished).cast("int").alias("served"),
        wait.isNotNull().cast("int").alias("waits"),
        F.coalesce(wait > target_ms, F.lit(False)).cast("int").alias("late"),  # noqa: FBT003
        perished.cast("int").alias("perished"),
        kind.eqNullSafe(AttemptEnd.EXPIRED.value).cast("int").alias("expired"),
        kind.eqNullSafe(AttemptEnd.DEAD_LETTERED.value).cast("int").alias("dead_lettered"),
    )
    still = waiting.where(F.col("ready") < span.end).select(
        "node",
        "ready",
        F.col("first").cast("int").alias("arrived"),
        F.lit(0).alias("work_ms"),
        F.lit(0).alias("served"),
        F.lit(1).alias("waits"),
        (span.end - F.col("ready") > target_ms).cast("int").alias("late"),
        *(F.lit(0).alias(name) for name in ("perished", "expired", "dead_lettered")),
    )
    sums = tried.columns[2:]
    return (
        tried.unionByName(still)
        .where(F.col("ready") >= span.begin)
        .groupBy("node", F.floor(F.col("ready") / HOUR_MS).alias("hour"))
        .agg(F.min("ready").alias("begin"), F.count("*").alias("items"), *(F.sum(name).alias(name) for name in sums))
        .orderBy("hour")
    )
