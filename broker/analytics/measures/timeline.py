"""How it went, step by step: what came and went, and how much there was on average in each step.

Levels are exact: each event counts from the millisecond at which it happened.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from broker.analytics.span import Span
from broker.journal.schema import Kind

_COUNTS: Final = ("arrived", "delivered", "closed", "acknowledged")
_LEVELS: Final = ("waiting", "in_flight")


def timeline(attempts: DataFrame, waiting: DataFrame, span: Span) -> DataFrame:
    """Give node, step, begin and length of the step, the counts, and the mean levels."""
    events = (
        attempts.select("node", F.inline(_of_attempt()))
        .unionByName(waiting.select("node", F.inline(_of_waiting())))
        .where(F.col("at") < span.end)
    )
    within = (F.col("at") >= span.begin).cast("int")
    # What happened before the interval makes the level at its beginning, and is nothing that came in it.
    since = F.greatest(F.col("at") - span.begin, F.lit(0))
    step = (since / span.width_ms).cast("int")
    steps = (
        events.withColumns({"within": within, "since": since, "step": step})
        .groupBy("node", "step")
        .agg(
            *(F.sum(F.col(name) * F.col("within")).alias(name) for name in _COUNTS),
            *(F.sum(name).alias(f"{name}_change") for name in _LEVELS),
            *(F.sum(F.col(name) * (_end(span) - F.col("since"))).alias(f"{name}_area") for name in _LEVELS),
        )
    )
    return _levels(_every_step(steps, span), span)


def peaks(steps: DataFrame) -> DataFrame:
    """Give per node: the highest rate of arrivals, the mean and the highest levels, and the growth of what waits."""
    seconds = F.col("length_ms") / 1000
    weighted = {name: F.sum(F.col(name) * F.col("length_ms")) / F.sum("length_ms") for name in _LEVELS}
    return steps.groupBy("node").agg(
        F.sum("arrived").alias("arrived"),
        F.sum("delivered").alias("delivered"),
        # A step that was cut short says nothing of peaks.
        F.max(F.when(F.col("length_ms") == F.col("width_ms"), F.col("arrived") / seconds)).alias("peak_per_s"),
        weighted["waiting"].alias("waiting_mean"),
        weighted["in_flight"].alias("in_flight_mean"),
        F.max("waiting").alias("waiting_most"),
        F.max("in_flight").alias("in_flight_most"),
        F.regr_slope("waiting", F.col("begin") / 1000).alias("growth_per_s"),
        F.regr_slope(F.col("arrived") / seconds, F.col("begin") / 86_400_000).alias("rate_growth_per_day"),
    )


def _of_attempt() -> Column:
    acknowledged = (F.col("type") == Kind.ACKNOWLEDGED.value).cast("int")
    waited = F.col("ready").isNotNull().cast("int")
    return F.array(
        _event("ready", arrived=(F.col("attempt") == 1).cast("int"), waiting=F.lit(1)),
        _event("delivered", delivered=F.lit(1), waiting=-waited, in_flight=F.lit(1)),
        _event("closed", closed=F.lit(1), acknowledged=acknowledged, in_flight=F.lit(-1)),
    )


def _of_waiting() -> Column:
    # Where it came back, its arrival is told by its first attempt.
    return F.array(_event("ready", arrived=F.col("first").cast("int"), waiting=F.lit(1)))


def _event(at: str, **changes: Column) -> Column:
    names = (*_COUNTS, *_LEVELS)
    return F.struct(F.col(at).alias("at"), *(changes.get(name, F.lit(0)).alias(name) for name in names))


def _end(span: Span) -> Column:
    """Give the end of a step, in ms since the beginning of the interval."""
    return F.least((F.col("step") + 1) * span.width_ms, F.lit(span.end - span.begin))


def _every_step(steps: DataFrame, span: Span) -> DataFrame:
    """Add the steps in which nothing happened."""
    every = F.explode(F.sequence(F.lit(0), F.lit(span.steps - 1))).alias("step")
    return steps.select("node").distinct().select("node", every).join(steps, ["node", "step"], "left").fillna(0)


def _levels(steps: DataFrame, span: Span) -> DataFrame:
    """Turn changes into levels."""
    before = Window.partitionBy("node").orderBy("step").rowsBetween(Window.unboundedPreceding, -1)
    length = _end(span) - F.col("step") * span.width_ms
    means = {
        name: F.coalesce(F.sum(f"{name}_change").over(before), F.lit(0)) + F.col(f"{name}_area") / length
        for name in _LEVELS
    }
    return steps.select(
        *("node", "step", (F.col("step").cast("long") * span.width_ms + span.begin).alias("begin")),
        *(length.alias("length_ms"), F.lit(span.width_ms).alias("width_ms"), *_COUNTS),
        *(mean.alias(name) for name, mean in means.items()),
    )
