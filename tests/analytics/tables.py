"""What the simulator did as the tables that a report is made of, through Parquet files. Knows their columns."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from tests.analytics.simulator import Attempt, Run

_TIME = pa.timestamp("us", tz="UTC")

ATTEMPTS = pa.schema(
    [
        ("node", pa.string()),
        ("incarnation", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.string()),
        ("type", pa.string()),
        ("item", pa.string()),
        ("published", _TIME),
        ("delivered", _TIME),
        ("closed", _TIME),
        ("attempt", pa.int32()),
        ("subscriber", pa.string()),
        ("frontend", pa.string()),
        ("bytes", pa.int64()),
        ("token", pa.int64()),
        ("reason", pa.string()),
        ("position", pa.string()),
        ("wait_ms", pa.int64()),
        ("held_ms", pa.int64()),
    ]
)

WAITING = pa.schema(
    [
        ("node", pa.string()),
        ("incarnation", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.string()),
        ("published", _TIME),
        ("item", pa.string()),
        ("key", pa.string()),
        ("publisher", pa.string()),
        ("at", _TIME),
    ]
)

CENSUS = pa.schema(
    [
        ("node", pa.string()),
        ("incarnation", pa.string()),
        ("partition", pa.int32()),
        ("at", _TIME),
        ("waiting", pa.int64()),
        ("in_flight", pa.int64()),
        ("oldest", _TIME),
        ("credit", pa.int64()),
        ("subscribers", pa.int32()),
        ("journal_first", pa.string()),
        ("journal_last", pa.string()),
        ("journal_length", pa.int64()),
        ("journal_max", pa.int64()),
        ("used_memory", pa.int64()),
        ("maxmemory", pa.int64()),
    ]
)


def attempts(spark: SparkSession, directory: Path, closed: Iterable[Attempt]) -> DataFrame:
    """Give the table of closed attempts."""
    rows = [
        {
            **{name: getattr(a, name) for name in ATTEMPTS.names if hasattr(a, name)},
            **{name: _us(getattr(a, name)) for name in ("published", "delivered", "closed")},
            "offset": f"{a.closed}-{number}",
            "wait_ms": a.delivered - a.published if a.attempt == 1 else None,
            "held_ms": a.closed - a.delivered,
        }
        for number, a in enumerate(closed)
    ]
    return _table(spark, directory / "attempts", rows, ATTEMPTS)


def waiting(spark: SparkSession, directory: Path, run: Run) -> DataFrame:
    """Give the table of what waits."""
    rows = [
        {
            **{name: getattr(item, name) for name in ("node", "incarnation", "partition")},
            "offset": item.position,
            "published": _us(item.published),
            "item": item.name,
            "publisher": "publisher@example.org",
        }
        for item in run.waiting
    ]
    return _table(spark, directory / "waiting", rows, WAITING)


def census(spark: SparkSession, directory: Path, rows: list[dict[str, object]]) -> DataFrame:
    """Give the table of what queues say of themselves."""
    return _table(spark, directory / "census", rows, CENSUS)


def time(ms: float) -> datetime:
    """Give ms since 1970 as a timestamp."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def _us(ms: int) -> int:
    return ms * 1000


def _table(spark: SparkSession, directory: Path, rows: list[dict[str, object]], schema: pa.Schema) -> DataFrame:
    directory.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema), directory / "part-0.parquet")
    return spark.read.parquet(str(directory))
