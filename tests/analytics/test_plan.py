"""What filters spare Redis is never a row that they let through."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from broker.analytics.source.offsets import MOST, Id
from broker.analytics.source.options import Options
from broker.analytics.source.plan import Wish, batch
from broker.analytics.source.reader import narrowed
from broker.analytics.source.servers import Process
from broker.analytics.source.snapshot import Bounds
from broker.journal.schema import Place

T0 = datetime(2023, 11, 14, tzinfo=UTC)
TIMES = st.integers(0, 400_000_000).map(lambda microseconds: T0 + timedelta(microseconds=microseconds))
NODES, NUMBERS, KINDS = ["jobs", "others"], [0, 1], ["acknowledged", "expired"]
COLUMNS: list[tuple[str, list[Any]]] = [("node", NODES), ("partition", NUMBERS), ("type", KINDS)]
COLUMNS += [(column, []) for column in ("published", "delivered", "closed")]
COMPARED: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: lambda row, value: row == value,
    GreaterThan: lambda row, value: row > value,
    GreaterThanOrEqual: lambda row, value: row >= value,
    LessThan: lambda row, value: row < value,
    LessThanOrEqual: lambda row, value: row <= value,
    In: lambda row, value: row in value,
    IsNotNull: lambda row, _: row is not None,
}


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    """Make a filter as Spark would push it."""
    column, values = draw(st.sampled_from(COLUMNS))
    if not values:
        kind = draw(st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]))
        return kind((column,), draw(TIMES))
    if draw(st.booleans()):
        return In((column,), tuple(draw(st.lists(st.sampled_from(values), max_size=2))))
    return draw(st.sampled_from([EqualTo((column,), draw(st.sampled_from(values))), IsNotNull((column,))]))


@st.composite
def rows(draw: st.DrawFn) -> dict[str, object]:
    """Make a row; its id is at most a minute from when it was closed."""
    published, delivered, closed = sorted(draw(st.lists(TIMES.map(whole), min_size=3, max_size=3)))
    return {
        "node": draw(st.sampled_from(NODES)),
        "partition": draw(st.sampled_from(NUMBERS)),
        "type": draw(st.sampled_from(KINDS)),
        "published": published,
        "delivered": delivered,
        "closed": closed,
        "id": round(closed.timestamp() * 1000) + draw(st.integers(-60_000, 60_000)),
    }


def passes(wanted: Any, row: dict[str, object]) -> bool:  # noqa: ANN401  (each kind of filter has its own fields)
    """Tell whether a filter lets a row through."""
    return COMPARED[type(wanted)](row[wanted.attribute[0]], getattr(wanted, "value", None))


def whole(at: datetime) -> datetime:
    """Cut a time to milliseconds, as records have it."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


@given(st.lists(filters(), max_size=4), rows(), st.integers(1, 5))
def test_a_row_that_passes_is_read(pushed: list[Filter], row: dict[str, object], tasks: int) -> None:
    """If all filters let a row through, its record is in one of the pieces, and its type among those that are decoded."""
    found = {}
    for node in NODES:
        for number in NUMBERS:
            place = Place(node, "ab12", number)
            first, last = Id(round(T0.timestamp() * 1000) - 60_000), Id(round(T0.timestamp() * 1000) + 460_000)
            found[place] = Bounds(Process("h", 1), place, f"{node}{number}", first, last, 900_000, 900_000)
    wish = Wish()
    for each in pushed:
        wish = narrowed(wish, each, "journal")
    works = batch(found, Options("redis://h", min_partitions=tasks), wish)
    pieces = [
        piece
        for work in works
        for piece in work.pieces
        if (piece.place.node, piece.place.partition) == (row["node"], row["partition"])
    ]
    at = row["id"]
    assert isinstance(at, int)
    read = sum(piece.after < Id(at, 5) <= piece.upto for piece in pieces)
    assert read <= 1
    if all(passes(each, row) for each in pushed):
        assert read == 1
        assert wish.kinds is None or row["type"] in wish.kinds


def test_a_filter_of_the_log_is_exact() -> None:
    """An entry of the log says in its id when it was published."""
    wish = narrowed(Wish(), LessThan(("published",), T0), "log")
    assert wish.last_ms - round(T0.timestamp() * 1000) <= 1
    assert narrowed(Wish(), LessThan(("at",), T0), "log").last_ms == MOST
