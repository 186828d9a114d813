"""What there is now, by the last collection of a history."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from broker.analytics.measures.census import find_start, present
from tests.analytics.tables import inputs

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BEFORE = NOW - timedelta(days=1)


def _row(node: str, incarnation: str, collected: datetime | None, waiting: int, **more: object) -> dict[str, object]:
    at = {"at": collected or BEFORE, "collected": collected}
    return {"node": node, "incarnation": incarnation, "waiting": waiting, "credit": 5, **at, **more}


def test_deleted(spark: SparkSession, tmp_path: Path) -> None:
    """A node that is not in the last collection is gone, and one that was made again is counted once."""
    rows = [
        _row("gone", "aa", BEFORE, 7),
        _row("again", "bb", BEFORE, 7),
        _row("again", "cc", NOW, 2),
        _row("stays", "dd", BEFORE, 1),
        _row("stays", "dd", NOW, 3),
        _row("stays", "dd", NOW, 4, partition=1),
    ]
    census = inputs(spark, tmp_path, [], rows).census
    found = {row.node: (row.partitions, row.waiting, row.credit) for row in present(census).collect()}
    assert found == {"again": (1, 2, 5), "stays": (2, 7, 10)}
    start = find_start(census)
    assert start is not None and start.astimezone(UTC) == NOW
