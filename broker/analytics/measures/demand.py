"""What is asked of a queue: how much, and how evenly it comes."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from broker.analytics.span import Span

_EACH_WINDOW: Final = (20, 100)
"""Arrivals in one window on average, least and most: a burst that is cut by its edges would seem less of one."""

_WINDOWS: Final = (20, 1000)
"""Fewer windows tell nothing; with more there is room for wider ones."""


def arrivals(attempts: DataFrame, waiting: DataFrame, span: Span) -> DataFrame:
    """Give node and time of each item published in the interval, whether it has been delivered or waits."""
    delivered = attempts.where("attempt = 1").select("node", "published")
    return delivered.unionByName(waiting.where("first").select("node", "published")).where(
        F.col("published").between(span.begin, span.end - 1)
    )


def windows(arrived: Mapping[str, int], span: Span) -> dict[str, int]:
    """Choose per node the width of the windows in ms in which its arrivals are counted; no entry for too few of them."""
    length = span.end - span.begin
    least, most = _EACH_WINDOW
    fewest, enough = _WINDOWS
    each = {node: min(max(least, count // enough), most) for node, count in arrived.items()}
    widths = {node: max(1, length * each[node] // count) for node, count in arrived.items() if count}
    return {node: width for node, width in widths.items() if length // width >= fewest}


def burstiness(arrived: DataFrame, widths: Mapping[str, int], span: Span) -> DataFrame:
    """Give per node how bursty arrivals are: 0 is a clock, 1 is chance alone (the Allan factor of their counts).

    Neighbouring windows are compared, so that a slow rise and fall, as of a day, is not taken for bursts.
    """
    width = F.element_at(F.create_map(*(F.lit(word) for pair in widths.items() for word in pair)), F.col("node"))
    # Whole windows alone: the last, cut short, would seem a fall.
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
    """Sum the squared steps from and to a window, of which those without arrivals are not there."""
    order = Window.partitionBy("node").orderBy("window")
    count, window = F.col("count"), F.col("window")
    near = F.lag("window").over(order) == window - 1
    rise = F.when(near, F.pow(count - F.lag("count").over(order), F.lit(2))).when(window > 0, count * count)
    followed = F.coalesce(F.lead("window").over(order) == window + 1, F.lit(False))  # noqa: FBT003
    fall = F.when(~followed & (window < F.col("last")), count * count)
    return F.coalesce(rise, F.lit(0)) + F.coalesce(fall, F.lit(0))
