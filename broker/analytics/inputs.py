"""What a report is made of. Placeholder until the data source stands."""

from dataclasses import dataclass

from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Inputs:
    """Attempts, what waits, what the queues say of themselves, and where records are missing."""

    attempts: DataFrame
    waiting: DataFrame
    census: DataFrame
    gaps: tuple[str, ...] = ()
