"""What `spark.readStream.format("stanzaq")` gives: increments, each row in exactly one, and of the size asked for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from broker.analytics.faults import told
from broker.model.names import Partition
from tests.analytics.conftest import Journals
from tests.lua.driver import T0

JOBS = Partition("jobs", "ab12")
OTHERS = Partition("others", "cd34", 5)

Increment = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def increment(spark: SparkSession, journals: Journals, tmp_path: Path) -> Increment:
    """Give a way to write what is new since the last time, to `out` in the test's directory."""

    def made(**options: str) -> list[dict[str, Any]]:
        query = (
            spark.readStream.format("stanzaq")
            .options(**{"url": journals.url, **options})
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(100)
        return [json.loads(progress.json) for progress in query.recentProgress]

    return made


def written(spark: SparkSession, tmp_path: Path) -> list[int]:
    """Give which records were written."""
    return sorted(row["token"] for row in spark.read.parquet(str(tmp_path / "out")).select("token").collect())


def rows_of(batches: list[dict[str, Any]]) -> list[int]:
    """Give the sizes of increments that had any rows."""
    return [batch["numInputRows"] for batch in batches if batch["numInputRows"]]


def test_each_row_once(spark: SparkSession, journals: Journals, increment: Increment, tmp_path: Path) -> None:
    """Increments together are the journals, those of a node that is new in between too, and none is empty for nothing."""
    journals.write(JOBS, 100)
    assert rows_of(increment()) == [100]
    assert rows_of(increment()) == []
    journals.write(JOBS, 50, first=100)
    journals.write(OTHERS, 30, first=1_000)
    assert rows_of(increment()) == [80]
    assert written(spark, tmp_path) == [*range(150), *range(1_000, 1_030)]


def test_exact_limit(spark: SparkSession, journals: Journals, increment: Increment, tmp_path: Path) -> None:
    """With a limit each increment has exactly so many rows, as long as there are as many, however they are spread."""
    journals.write(JOBS, 95)
    journals.write(OTHERS, 5, first=1_000)
    journals.write(Partition("jobs", "ab12", 1), 1, first=2_000)
    assert rows_of(increment(maxOffsetsPerTrigger="40")) == [40, 40, 21]
    assert written(spark, tmp_path) == [*range(95), *range(1_000, 1_005), 2_000]
    journals.write(JOBS, 40, first=95)
    journals.trim(JOBS, 40)
    assert rows_of(increment(maxOffsetsPerTrigger="40")) == [40]


def test_idle_until_all_is_too_old(journals: Journals, increment: Increment) -> None:
    """A journal that was read whole may lose everything: nothing went unread."""
    journals.write(JOBS, 100)
    increment()
    journals.trim(JOBS, 0)
    assert rows_of(increment()) == []
    journals.write(JOBS, 10, first=100)
    assert rows_of(increment()) == [10]


@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": "7"}])
def test_loss_in_between(
    spark: SparkSession, journals: Journals, increment: Increment, tmp_path: Path, limit: dict[str, str]
) -> None:
    """What went between two increments is refused, and passed over if that is wished; then it goes on from there."""
    journals.write(JOBS, 100)
    increment(**limit)
    journals.write(JOBS, 50, first=100)
    journals.trim(JOBS, 20)
    for _ in range(2):
        with pytest.raises(PySparkException) as caught:
            increment(**limit)
        line = told(caught.value)
        assert line
        assert line.startswith(f"journal of jobs@ab12/0: 30 records after {T0 + 99_000}-0 went before they were read")
    assert sum(rows_of(increment(failOnDataLoss="false", **limit))) == 20
    journals.write(JOBS, 5, first=150)
    assert rows_of(increment(**limit)) == [5]
    assert written(spark, tmp_path) == [*range(100), *range(130, 155)]


def test_deleted_node(journals: Journals, increment: Increment) -> None:
    """A node that is not there any more is refused once, and forgotten if that is wished."""
    journals.write(JOBS, 10)
    journals.write(OTHERS, 10)
    increment()
    journals.client.delete("sq:{others@cd34/5}:journal")
    with pytest.raises(PySparkException) as caught:
        increment()
    assert str(told(caught.value)).startswith("journal of others@cd34/5: records after ")
    increment(failOnDataLoss="false")
    journals.write(JOBS, 10, first=10)
    assert rows_of(increment()) == [10]


def test_starts(spark: SparkSession, journals: Journals, increment: Increment, tmp_path: Path) -> None:
    """It may begin with what is new, whatever there is."""
    journals.write(JOBS, 100)
    assert rows_of(increment(startingOffsets="latest")) == []
    journals.write(JOBS, 10, first=100)
    journals.write(OTHERS, 10, first=1_000)
    assert rows_of(increment(startingOffsets="latest")) == [20]
    assert written(spark, tmp_path) == [*range(100, 110), *range(1_000, 1_010)]


def test_an_end_is_refused(journals: Journals, increment: Increment) -> None:
    """A stream has no end."""
    with pytest.raises(PySparkException) as caught:
        increment(endingTimestamp=str(T0))
    assert str(told(caught.value)).startswith("a stream has no end: ")
