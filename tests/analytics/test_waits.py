"""The start of an item's wait: for its first delivery, for another, and where the earlier record is gone."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker.analytics.measures.attempts import add_waits, count_perished, drop_perished, waiting_since
from broker.analytics.measures.timeline import peaks, timeline
from broker.analytics.span import Span
from tests.analytics import tables
from tests.analytics.simulator import Attempt, Item

T = 1_767_225_600_000
FIRST = Attempt(
    *("jobs", "8e71964d", 0, f"{T}-0", "released", "job", T, T, T + 100, T + 300, 1),
    *("w@example.org/a", "f1", 200, 1, "told so"),
)
SECOND = replace(FIRST, delivered=T + 1_300, closed=T + 1_500, attempt=2, token=2, type="acknowledged", reason="")


def _waits(spark: SparkSession, path: Path, *attempts: Attempt) -> dict[tuple[str, int, int], int | None]:
    rows = add_waits(tables.attempts(spark, path / "attempts.parquet", attempts)).collect()
    return {(row.incarnation, row.partition, row.attempt): row.wait_ms for row in rows}


def test_again(spark: SparkSession, tmp_path: Path) -> None:
    """The wait for a second delivery begins with the close of the first, any delay included."""
    assert _waits(spark, tmp_path, FIRST, SECOND) == {("8e71964d", 0, 1): 100, ("8e71964d", 0, 2): 1_000}


def test_clock_set_back(spark: SparkSession, tmp_path: Path) -> None:
    """Where Redis's clock was set back an hour during a wait or a job, that took no time, rather than less than none."""
    late = replace(FIRST, delivered=T - 3_600_000, closed=T - 3_599_900)
    long = replace(FIRST, position=f"{T}-1", closed=T - 3_599_900, type="acknowledged")
    attempts = add_waits(tables.attempts(spark, tmp_path / "attempts.parquet", [late, long])).localCheckpoint()
    found = attempts.orderBy("position").collect()
    assert [(row.wait_ms, row.held_ms, row.end_to_end_ms) for row in found] == [(0, 100, None), (100, 0, 100)]
    nobody = waiting_since(tables.waiting(spark, tmp_path / "waiting.parquet", []), attempts, None)
    steps = timeline(attempts, nobody, Span(T - 3_600_000, T + 1_000)).collect()
    assert min(min(row.waiting, row.in_flight) for row in steps) == 0
    lasted = [sum(getattr(row, name) * row.length_ms for row in steps) for name in ("waiting", "in_flight")]
    assert lasted == pytest.approx([100, 100])


def test_ninety_days(spark: SparkSession, tmp_path: Path) -> None:
    """Times of an interval of any length are counted whole: ninety days have more milliseconds than an int."""
    long = 90 * 86_400_000
    last = replace(FIRST, position=f"{T + long - 1_000}-0", published=T + long - 1_000, delivered=T + long - 900)
    rows = [FIRST, replace(last, closed=T + long - 800)]
    attempts = add_waits(tables.attempts(spark, tmp_path / "attempts.parquet", rows)).localCheckpoint()
    nobody = waiting_since(tables.waiting(spark, tmp_path / "waiting.parquet", []), attempts, None)
    span = Span(T, T + long)
    [row] = peaks(timeline(attempts, nobody, span)).collect()
    assert (row.arrived, row.waiting_most > 0, row.in_flight_mean) == (2, True, pytest.approx(300 / long))


def test_unknown(spark: SparkSession, tmp_path: Path) -> None:
    """Without the earlier record the wait is unknown; the row is there all the same."""
    assert _waits(spark, tmp_path, SECOND) == {("8e71964d", 0, 2): None}


@pytest.mark.parametrize("other", [{"incarnation": "00000000"}, {"partition": 1}, {"node": "mail"}])
def test_others(spark: SparkSession, tmp_path: Path, other: dict[str, object]) -> None:
    """The same position in another partition, or in another incarnation of the node, is another item."""
    waits = _waits(spark, tmp_path, replace(FIRST, **other), SECOND)  # type: ignore[arg-type]
    assert sorted(waits.values(), key=str) == [100, None]


def test_what_waits(spark: SparkSession, tmp_path: Path) -> None:
    """An item that came back waits since then, and is no new arrival; one never delivered waits since its publish."""
    attempts = add_waits(tables.attempts(spark, tmp_path / "attempts.parquet", [FIRST]))
    items = [Item("jobs", "8e71964d", 0, f"{T}-{number}", "job", T, 200) for number in (0, 1)]
    rows = waiting_since(tables.waiting(spark, tmp_path / "waiting.parquet", items), attempts, None).collect()
    assert {(row.ready - T, row.first) for row in rows} == {(300, False), (0, True)}


def test_what_perished(spark: SparkSession, tmp_path: Path) -> None:
    """An expired item arrived and waited until then, and was never held: it is counted apart."""
    lost = replace(FIRST, type="perished", delivered=T + 800, closed=T + 800, subscriber="", reason="")
    attempts = add_waits(tables.attempts(spark, tmp_path / "attempts.parquet", [lost]))
    assert [(row.wait_ms, row.held_ms) for row in attempts.collect()] == [(800, 0)]
    assert drop_perished(attempts).count() == 0
    assert [(row.node, row.perished) for row in count_perished(attempts).collect()] == [("jobs", 1)]
    nobody = waiting_since(tables.waiting(spark, tmp_path / "waiting.parquet", []), attempts, None)
    steps = timeline(attempts, nobody, Span(T, T + 1_000)).collect()
    assert [sum(getattr(row, name) for row in steps) for name in ("arrived", "delivered", "closed")] == [1, 0, 0]
    lasted = [sum(getattr(row, name) * row.length_ms for row in steps) for name in ("waiting", "in_flight")]
    assert lasted == pytest.approx([800, 0])
