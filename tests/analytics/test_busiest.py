"""What of a node is replayed, with whose credit and by which rules."""

import pytest
from pyspark.sql import Row

from broker.analytics.busiest import REPLAYED, Busiest, Credit, find_busiest, find_credit, read_rules, window
from broker.analytics.replay import Rules
from broker.analytics.span import Span
from tests.analytics.shapes import HOUR_MS

HOUR = 491_000


def _hour(number: int, items: int, work_ms: float = 0, *, served: int | None = None, begin: int = 0) -> Row:
    at = (HOUR + number) * HOUR_MS + begin
    done = items if served is None else served
    return Row(hour=HOUR + number, begin=at, arrived=items, items=items, work_ms=work_ms or items * 1_000, served=done)


def _span(hours: float) -> Span:
    return Span(HOUR * HOUR_MS, int((HOUR + hours) * HOUR_MS))


def test_the_most_work() -> None:
    """Few long items are more work than many short ones; what nobody got counts as another item does."""
    long = find_busiest([_hour(0, 100), _hour(1, 10, 200_000), _hour(2, 50)], _span(3))
    assert (long.since, long.arrived) == ((HOUR + 1) * HOUR_MS, 10)
    assert find_busiest([_hour(0, 100), _hour(1, 150, 1_000, served=1)], _span(3)).arrived == 150


def test_a_short_interval() -> None:
    """An interval of up to two hours is replayed as a whole, from its first item on."""
    found = find_busiest([_hour(0, 10, begin=5_000), _hour(1, 99)], _span(1.5))
    assert (found.since, found.until, found.arrived) == (HOUR * HOUR_MS + 5_000, _span(1.5).end, 109)


def test_what_came_before() -> None:
    """Up to a day before it is replayed too, as far as there is room."""
    rows = [_hour(number, 1_000) for number in range(40)]
    rows[35] = _hour(35, 2_000)
    assert find_busiest(rows, _span(40)).begin == (HOUR + 35 - 24) * HOUR_MS
    rows[33] = _hour(33, REPLAYED - 2_500, 1)
    assert find_busiest(rows, _span(40)).begin == (HOUR + 34) * HOUR_MS


def test_too_many() -> None:
    """Of an hour with more than can be replayed, its first part is, at the same rate."""
    found = find_busiest([_hour(0, 1), _hour(1, 4 * REPLAYED), _hour(2, 1)], _span(3))
    assert found.arrived == REPLAYED and found.seconds == pytest.approx(900)
    assert found.arrived / found.seconds == pytest.approx(4 * REPLAYED / 3_600)


def test_credit_of_then() -> None:
    """The census nearest to the hour tells the credit of then; what was at work is credit, too; without a census it is all."""
    busiest = Busiest(100 * HOUR_MS, 101 * HOUR_MS, 1, 100 * HOUR_MS)
    censuses = [Row(at=at * HOUR_MS, credit=credit) for at, credit in ((90, 2), (102, 7), (120, 50))]
    peaks = Row(in_flight_most=5.2)
    assert find_credit(censuses, peaks, busiest, 50) == Credit(7, seen=True, now=50)
    assert find_credit(censuses[:1], peaks, busiest, None) == Credit(5, seen=True)
    assert find_credit([], peaks, busiest, None) == Credit(5, seen=False)


def test_rules() -> None:
    """Bounds and rests are read as operations have them; a burst of 0 is one item and those of a second."""
    row = Row(limits="3 5 1000 0", retry_delay="100 60000 2 0.1")
    assert read_rules(row) == Rules(3, 200.0, 6.0, 100.0, 2.0, 60_000.0)
    plain = read_rules(Row(limits="", retry_delay=""))
    assert (plain.max_in_flight, plain.interval_ms, plain.rest(1)) == (0, 0, 0)
    busiest = find_busiest([_hour(0, 1)], _span(1))
    assert (window(busiest, row, 4).rules, window(busiest, None, 4).rules) == (read_rules(row), Rules())
