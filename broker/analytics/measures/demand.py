"""The demand on a queue: how much arrives, and how evenly."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from broker.analytics.span import Span

_EACH_WINDOW: Final = (20, 100)
"""Mean arrivals in a window, least and most. Narrower windows would cut bursts at their edges and hide them."""

_WINDOWS: Final = (20, 1000)
"""Fewer windows tell nothing. With more of them, wider windows fit."""


def arrivals(attempts: DataFrame, waiting: DataFrame, span: Span) -> DataFrame:
    """Return node and time of each item published in the interval, whether delivered or still waiting."""
    delivered = attempts.where("attempt = 1").select("node", "published")
    return delivered.unionByName(waiting.where("first").select("node", "published")).where(
        F.col("published").between(span.begin, span.end - 1)
    )


def windows(arrived: Mapping[str, int], span: Span) -> dict[str, int]:
    """Choose by node the width in ms of the windows in which arrivals are counted; no entry for too few arrivals."""
    length = span.end - span.begin
    least, most = _EACH_WINDOW
    fewest, enough = _WINDOWS
    each = {node: min(max(least, count // enough), most) for node, count in arrived.items()}
    widths = {node: max(1, length * each[node] // count) for node, count in arrived.items() if count}
    return {node: width for node, width in widths.items() if length // width >= fewest}


def burstiness(arrived: DataFrame, widths: Mapping[str, int], span: Span) -> DataFrame:
    """Return by node how bursty arrivals are (the Allan factor of their counts): 0 at a fixed pace, 1 at random.

    It compares neighbouring windows, so that a slow rise and fall, as over a day, does not count as a burst.
    """
    width = F.element_at(F.create_map(*(F.lit(word) for pair in widths.items() for word in pair)), F.col("node"))
    # Whole windows only: a last one cut short would look like a fall.
    last = (F.lit(span.end - span.begin) / F.col("width")).cast("long") - 1
    counted = (
        arrived.where(F.col("node").isin(*widths))
        .withColumn("width", width)
        .withColumn("window", ((F.col("published") - span.begin) / F.col("width")).cast("long"))
        .where(F.col("window") <= last)
        .groupBy("node", "window", last.alias("last"))
        .agg(F.count("*").alias("count"))
    )
    return (
        counted.withColumn("squares", _squares())
        .groupBy("node")
        .agg((F.sum("squares") / (2 * F.first("last")) / (F.sum("count") / (F.first("last") + 1))).alias("burstiness"))
    )


def _squares() -> Column:
    """Sum the squared steps before and after a window. Windows without arrivals have no row."""
    order = Window.partitionBy("node").orderBy("window")
    count, window = F.col("count"), F.col("window")
    near = F.lag("window").over(order) == window - 1
    rise = F.when(near, F.pow(count - F.lag("count").over(order), F.lit(2))).when(window > 0, count * count)
    followed = F.coalesce(F.lead("window").over(order) == window + 1, F.lit(False))  # noqa: FBT003
    fall = F.when(~followed & (window < F.col("last")), count * count)
    return F.coalesce(rise, F.lit(0)) + F.coalesce(fall, F.lit(0))
