"""The simulator's output as the tables of a report. Knows their columns."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from broker.analytics import census, history
from broker.analytics.inputs import Inputs
from broker.analytics.source import columns
from tests.analytics.simulator import Attempt, Item, Run

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def inputs(
    spark: SparkSession,
    directory: Path,
    runs: Sequence[Run],
    standing: Sequence[dict[str, Any]] = (),
    last: datetime | None = None,
) -> Inputs:
    """Return all tables of some runs; `standing` are rows of the census, whose missing values are 0."""
    directory.mkdir(exist_ok=True)
    nothing = {"partition": 0, "waiting": 0, "in_flight": 0, "credit": 0, "subscribers": 1, "journal_length": 0}
    memory = {"journal_max": 10_000, "used_memory": 0, "maxmemory": 0}
    together = {"collected": max((row["at"] for row in standing), default=None)}
    rows = [[{**nothing, **memory, **together, **row}.get(name) for name in census.SCHEMA.names] for row in standing]
    return Inputs(
        attempts(spark, directory / "attempts.parquet", [attempt for run in runs for attempt in run.attempts]),
        spark.createDataFrame([], census.IN_FLIGHT),
        waiting(spark, directory / "waiting.parquet", [item for run in runs for item in run.waiting]),
        spark.createDataFrame(rows, census.SCHEMA),
        spark.createDataFrame([], history.GAPS),
        None,
        last,
        earlier=False,
    )


def attempts(spark: SparkSession, path: Path, closed: Iterable[Attempt]) -> DataFrame:
    """Return the table of closed attempts."""
    rows = [
        {
            **{name: getattr(attempt, name, None) for name in columns.ATTEMPTS.names},
            **{name: time(getattr(attempt, name)) for name in ("published", "delivered", "closed")},
            "offset": f"{attempt.closed}-{number}",
            "wait_ms": attempt.delivered - attempt.published if attempt.attempt == 1 else None,
            "held_ms": attempt.closed - attempt.delivered,
        }
        for number, attempt in enumerate(closed)
    ]
    return _table(spark, path, rows, columns.ATTEMPTS)


def waiting(spark: SparkSession, path: Path, items: Iterable[Item]) -> DataFrame:
    """Return the table of waiting items."""
    rows = [
        {
            **{name: getattr(item, name) for name in ("node", "incarnation", "partition")},
            "offset": item.position,
            "published": time(item.published),
            "item": item.name,
            "publisher": "publisher@example.org",
        }
        for item in items
    ]
    schema = pa.schema([field for field in columns.LOG if field.name != "body"])
    return _table(spark, path, rows, schema)


def time(ms: float) -> datetime:
    """Return ms since 1970 as a timestamp."""
    return _EPOCH + timedelta(milliseconds=ms)


def _table(spark: SparkSession, path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> DataFrame:
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    return spark.read.parquet(str(path))
