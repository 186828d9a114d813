"""How long items wait, are worked on, and take from publish to acknowledgement."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

LEGS: Final = ("wait_ms", "held_ms", "end_to_end_ms")
"""The parts of an item's way; `end_to_end_ms` from its publish to the acknowledgement, over all of its attempts."""

CURVE: Final = (*(number / 20 for number in range(1, 20)), 0.975, 0.99, 0.999)
"""The shares at which the curve of each leg is known."""

# The rank is right to one in so many: at the 99th percentile of a long tail that is well under 1 % of the value.
_ACCURACY: Final = 10_000


def latency(attempts: DataFrame) -> DataFrame:
    """Give per node the mean, the curve and the greatest value of each leg."""
    measures = [
        measure
        for leg in LEGS
        for measure in (
            F.avg(leg).alias(f"{leg}_mean"),
            F.percentile_approx(leg, list(CURVE), _ACCURACY).alias(leg),
            F.max(leg).alias(f"{leg}_most"),
        )
    ]
    return attempts.groupBy("node").agg(*measures)
