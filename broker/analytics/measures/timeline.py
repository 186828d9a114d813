"""The timeline: counts and mean levels in each step of the interval.

Levels are exact: each event counts from its own millisecond.
"""

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from broker.analytics.span import Span
from broker.journal.schema import AttemptEnd

_COUNTS: Final = ("arrived", "delivered", "closed", "acknowledged")
_LEVELS: Final = ("waiting", "in_flight")
_SUMS: Final = (*_COUNTS, *(f"{name}_{of}" for name in _LEVELS for of in ("change", "area")))


def timeline(attempts: DataFrame, waiting: DataFrame, span: Span) -> DataFrame:
    """Return node, step, begin and length of the step, the counts, and the mean levels."""
    come, gone = F.lit(1), F.lit(-1)
    waited = F.col("ready").isNotNull().cast("int")
    first = (F.col("attempt") == 1).cast("int")
    well = (F.col("type") == AttemptEnd.ACKNOWLEDGED.value).cast("int")
    # An item that expired undelivered (`perished`) arrived and waited; its record has no time in flight.
    made = (F.col("type") != AttemptEnd.PERISHED.value).cast("int")
    events = (
        _events(attempts, span, "ready", arrived=first, waiting=come),
        _events(attempts, span, "delivered", delivered=made, waiting=-waited, in_flight=come),
        _events(attempts, span, "closed", closed=made, acknowledged=well, in_flight=gone),
        # The first attempt of an item that came back has counted its arrival.
        _events(waiting, span, "ready", arrived=F.col("first").cast("int"), waiting=come),
    )
    steps = (
        reduce(DataFrame.unionByName, events).groupBy("node", "step").agg(*(F.sum(name).alias(name) for name in _SUMS))
    )
    # Small by now and used twice: compute it once, here.
    return _levels(_every_step(steps.localCheckpoint(), span), span)


def _events(table: DataFrame, span: Span, at: str, **changes: Column) -> DataFrame:
    """Add up what one kind of event changes in each step: counts within the interval, levels by all events before its end.

    Events before the interval make the level at its beginning and count nothing.
    """
    since = F.greatest(F.col(at) - span.begin, F.lit(0))
    # A bigint: times a width it is a time, which an int holds for 24 days only.
    step = F.floor(since / span.width_ms)
    within = (F.col(at) >= span.begin).cast("int")
    sums: dict[str, Column] = {name: changes[name] * within for name in _COUNTS if name in changes}
    for name in _LEVELS:
        if name in changes:
            sums |= {f"{name}_change": changes[name], f"{name}_area": changes[name] * (_end(span) - F.col("since"))}
    return (
        table.where(F.col(at) < span.end)
        .withColumns({"since": since, "step": step})
        .groupBy("node", "step")
        .agg(*(F.sum(value).alias(name) for name, value in sums.items()))
        # Constants are added after the aggregation: a sum of zeros costs as much as any other.
        .select("node", "step", *(F.col(name) if name in sums else F.lit(0).alias(name) for name in _SUMS))
    )


def peaks(steps: DataFrame) -> DataFrame:
    """Return by node the peak rate of arrivals, mean and peak levels, and the growth of the backlog."""
    seconds = F.col("length_ms") / 1000
    weighted = {name: F.sum(F.col(name) * F.col("length_ms")) / F.sum("length_ms") for name in _LEVELS}
    return steps.groupBy("node").agg(
        F.sum("arrived").alias("arrived"),
        F.sum("delivered").alias("delivered"),
        # A step that was cut short says nothing about peaks.
        F.max(F.when(F.col("length_ms") == F.col("width_ms"), F.col("arrived") / seconds)).alias("peak_per_s"),
        weighted["waiting"].alias("waiting_mean"),
        weighted["in_flight"].alias("in_flight_mean"),
        F.max("waiting").alias("waiting_most"),
        F.max("in_flight").alias("in_flight_most"),
        F.regr_slope("waiting", F.col("begin") / 1000).alias("growth_per_s"),
        F.regr_slope(F.col("arrived") / seconds, F.col("begin") / 86_400_000).alias("rate_growth_per_day"),
    )


def _end(span: Span) -> Column:
    """Return the end of a step, in ms since the beginning of the interval."""
    return F.least((F.col("step") + 1) * span.width_ms, F.lit(span.end - span.begin))


def _every_step(steps: DataFrame, span: Span) -> DataFrame:
    """Add the steps without events."""
    every = F.explode(F.sequence(F.lit(0).cast("long"), F.lit(span.steps - 1))).alias("step")
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
        *("node", "step", (F.col("step") * span.width_ms + span.begin).alias("begin")),
        *(length.alias("length_ms"), F.lit(span.width_ms).alias("width_ms"), *_COUNTS),
        *(mean.alias(name) for name, mean in means.items()),
    )
