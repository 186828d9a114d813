"""How long items wait, are worked on, and take from publish to acknowledgement.

Durations are counted in cells: exact up to two seconds, a thousandth wide above. So one pass without sorting is enough,
and a percentile is wrong by at most half a thousandth.
"""

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

LEGS: Final = ("wait_ms", "held_ms", "end_to_end_ms")
"""The legs that are measured; `end_to_end_ms` is from publish to acknowledgement, over all attempts."""

CURVE: Final = (*(number / 20 for number in range(1, 20)), 0.975, 0.99, 0.999)
"""The quantiles at which the curve of each leg is known."""

_EXACT: Final = 2_000
_FINENESS: Final = 1_000


def latency(attempts: DataFrame) -> DataFrame:
    """Return by node and leg the mean, the maximum, and the quantiles of CURVE."""
    cells = reduce(DataFrame.unionByName, (_cells(attempts, leg) for leg in LEGS))
    of_leg = Window.partitionBy("node", "leg")
    upto = F.sum("number").over(of_leg.orderBy("cell"))
    ranked = cells.withColumns({"upto": upto, "all": F.sum("number").over(of_leg)})
    return ranked.groupBy("node", "leg").agg(
        (F.sum("total") / F.sum("number")).alias("mean"),
        F.max("most").alias("most"),
        F.array(*(F.min(F.when(F.col("upto") >= F.ceil(F.col("all") * share), _value())) for share in CURVE)).alias(
            "curve"
        ),
    )


def _cells(attempts: DataFrame, leg: str) -> DataFrame:
    duration = F.col(leg)
    wide = F.floor(F.log(duration / _EXACT) * _FINENESS) + _EXACT
    cell = F.when(duration < _EXACT, duration).otherwise(wide).alias("cell")
    return (
        attempts.where(duration.isNotNull())
        .groupBy("node", F.lit(leg).alias("leg"), cell)
        .agg(F.count("*").alias("number"), F.sum(leg).alias("total"), F.max(leg).alias("most"))
    )


def _value() -> Column:
    """Return the middle of a cell."""
    middle = F.exp((F.col("cell") - _EXACT + 0.5) / _FINENESS) * _EXACT
    return F.when(F.col("cell") < _EXACT, F.col("cell").cast("double")).otherwise(F.least(middle, F.col("most")))
