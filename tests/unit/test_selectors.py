"""Selectors as texts: what parses, what does not and where, what it means, and the cost of hostile ones."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings

from broker.selectors.conditions import groups
from broker.selectors.program import conditions, program
from broker.selectors.text import MOST_CHARACTERS, UnreadableSelector, read
from broker.selectors.tree import (
    Among,
    Both,
    Comparison,
    Either,
    Field,
    Like,
    Literal,
    Missing,
    Negation,
    Order,
    Predicate,
    Section,
    write_tree,
)
from broker.selectors.values import Value, Values, judge, selects
from tests.chosen import NAMES, TEXTS, met, trees, values

ITEM: Values = {
    "a.color": "red",
    "a.size": "12",
    "a.paid": "true",
    "a.who's": "x",
    "p.content-type": "application/xml",
    "h.delivery-count": 2.0,
    "m.event-streams-offset": "a4c5",
    "d.urgent": True,
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("m.event-streams-offset > '100'", True),
        ("m.event-streams-offset >= 'a4c5'", True),
        ("m.event-streams-timestamp > 1585672841", None),
        ("message_annotations.event-streams-offset = 'a4c5'", True),
        ("TRUE", True),
        ("false", False),
        ("color = 'red'", True),
        ("a.color = 'red' AND application_properties.size = 12", True),
        ("size > 9", True),
        ("size > '9'", False),
        ("size = 12.0 and size = +1.2e1", True),
        ("color > 5", None),
        ("paid", True),
        ("paid = TRUE AND d.urgent", True),
        ("NOT paid or color <> 'red'", False),
        ("d.urgent > FALSE", None),
        ("absent = 1 OR color = 'red'", True),
        ("absent = 1 AND color = 'blue'", False),
        ("NOT absent = 1", None),
        ("absent IS NULL AND color IS NOT NULL", True),
        ("color IN ('blue', 'red')", True),
        ("color NOT IN ('blue', 1)", None),
        ("size BETWEEN 12 AND 13 AND color BETWEEN 'r' AND 's'", True),
        ("size NOT BETWEEN 1 AND 11", True),
        ("color LIKE 'r_d' AND color LIKE '%e%' AND color NOT LIKE 'R%'", True),
        ("color LIKE 'r!%' ESCAPE '!'", False),
        ("h.delivery-count = 2 AND header.delivery_count < 3", True),
        ("p.Content_Type = 'application/xml'", True),
        ('"who\'s" = \'x\' AND a."absent.too" IS NULL', True),
        ("'it''s' = 'it''s'", True),
        ("color = 'red' OR absent = 1 AND color = 'blue'", True),
    ],
)
def test_what_they_say(text: str, found: bool | None) -> None:  # noqa: FBT001  (a truth value of SQL)
    """E24, issue 9: the examples of the draft, and more of SQL and JMS, in three-valued logic."""
    assert judge(read(text))(ITEM) is found
    assert selects(read(text), ITEM) is (found is True)


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 1, "the text ends; expected"),
        ("color = ", 9, "the text ends; expected FALSE, TRUE, a field"),
        ("color == 'red'", 8, "'=' cannot stand here"),
        ("color = 'red", 9, "the quote has no end"),
        ("color = 'red' size = 3", 15, "expected AND, OR or the end"),
        ("(color = 'red'", 15, "expected ) or OR"),
        ("size - 1 = 3", 6, "'-' cannot stand here"),
        ("z.color = 'red'", 1, "before a dot stands a section"),
        ("color LIKE 'a!b' ESCAPE '!'", 12, "the escape character stands before"),
        ("color LIKE 'a' ESCAPE 'no'", 23, "one character"),
        ("size = 1e999", 8, "too large"),
        ("color = NULL", 9, "cannot stand here"),
        ("x" * (MOST_CHARACTERS + 1), MOST_CHARACTERS + 1, "at most 1024 characters"),
        ("color = 'red'\n and and", 20, "line 2, column 6"),
    ],
)
def test_what_does_not_read(text: str, position: int, words: str) -> None:
    """Bad input is a clear error for its sender: the place, and what could be there."""
    with pytest.raises(UnreadableSelector) as refused:
        read(text)
    assert refused.value.position == position
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "bomb",
    [
        "(" * 1_000,
        "(" * 511 + "x" + ")" * 511,
        "NOT " * 255 + "x",
        "x=1 OR " * 140 + "x=1",
        "x IN (" + "1," * 500 + "1)",
        "x LIKE '" + "%_" * 400 + "'",
        "'" * 1_001,
        "x BETWEEN 1 AND 2 AND " * 46 + "x",
    ],
    ids=range(8),
)
def test_bombs(bomb: str) -> None:
    """Deep or long selectors are parsed or refused in linear time, and no stack overflows."""
    began = time.process_time()
    for _ in range(20):
        read.cache_clear()
        with suppress(UnreadableSelector):
            judge(read(bomb))({})
    assert time.process_time() - began < 10


@given(trees())
@settings(max_examples=200, deadline=None)
def test_written_reads_back(tree: Predicate) -> None:
    """There is one text for each tree, and it reads back as that tree."""
    again = read(write_tree(tree))
    assert again == tree
    # Of Python's values TRUE equals 1.
    assert program(again) == program(tree)


def _named(key: str) -> str:
    return '"' + key + '"'


def _sql(tree: Predicate) -> str:  # noqa: C901, PLR0911  (a case for each part of the grammar)
    """Write a tree for SQLite, by our names for its columns."""
    match tree:
        case Field():
            return _named(tree.key)
        case Literal(bool(value)):
            return "1" if value else "0"
        case Literal(str(value)):
            return "'" + value.replace("'", "''") + "'"
        case Literal(value):
            return repr(value)
        case Comparison(left, order, right):
            return f"({_sql(left)} {order.value} {_sql(right)})"
        case Both(left, right):
            return f"({_sql(left)} AND {_sql(right)})"
        case Either(left, right):
            return f"({_sql(left)} OR {_sql(right)})"
        case Negation(predicate):
            return f"(NOT {_sql(predicate)})"
        case Like(field, pattern):
            text = "".join(char if wild or char not in "%_!" else f"!{char}" for char, wild in pattern)
            return f"({_named(field.key)} LIKE {_sql(Literal(text))} ESCAPE '!')"
        case Among(field, choices):
            return f"({_named(field.key)} IN ({', '.join(map(_sql, choices))}))"
        case Missing(field):
            return f"({_named(field.key)} IS NULL)"


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    """Give a database whose LIKE knows capitals, as ours does."""
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA case_sensitive_like = ON")
    yield connection
    connection.close()


@given(trees(typed=True), values(typed=True))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_as_sql_says(database: sqlite3.Connection, tree: Predicate, item: dict[str, Value]) -> None:
    """Where types agree, SQLite gives the same result: truth values, LIKE, IN, IS NULL and the order of texts and numbers."""
    columns = ", ".join(f"? AS {_named(name)}" for name in NAMES)
    asked = f"SELECT {_sql(tree)} FROM (SELECT {columns})"  # noqa: S608  (all of it is ours)
    (found,) = database.execute(asked, [item.get(name) for name in NAMES]).fetchone()
    assert judge(tree)(item) is (None if found is None else bool(found))


def test_sections_and_texts() -> None:
    """The names of sections are those of the draft, short and long; texts keep all characters."""
    for long, short in (
        ("properties", "p"),
        ("header", "h"),
        ("delivery_annotations", "d"),
        ("Message_Annotations", "m"),
    ):
        assert read(f"{long}.x IS NULL") == read(f"{short}.x IS NULL") == Missing(Field(Section(short), "x"))
    for text in TEXTS:
        assert read("x = '" + text.replace("'", "''") + "'") == Comparison(
            Field(Section.APPLICATION, "x"), Order.EQUAL, Literal(text)
        )


@given(trees(), values())
@settings(max_examples=400, deadline=None)
def test_conditions_are_necessary(tree: Predicate, item: dict[str, Value]) -> None:
    """Issue 18 B: a selected item meets a condition of each group, so the index misses no subscriber."""
    _necessary(tree, item)


@pytest.mark.soak
@given(trees(), values())
@settings(max_examples=10_000, deadline=None)
def test_conditions_are_necessary_for_long(tree: Predicate, item: dict[str, Value]) -> None:
    """The same for many more."""
    _necessary(tree, item)


def _necessary(tree: Predicate, item: dict[str, Value]) -> None:
    if selects(tree, item):
        assert all(met(item) & set(group) for group in groups(tree))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("color = 'red'", ["a.color=red"]),
        ("'red' = color AND size > 5", ["a.color=red"]),
        ("color IN ('red', 'blue') AND size = +1.20e1", ["a.color=red a.color=blue", "a.size#12"]),
        ("size = -0.0 OR paid = TRUE", ["a.size#0 a.paid=true"]),
        ("p.content-type = 'a' OR (color = 'b' AND size IN (1, 2))", ["p.content-type=a a.color=b"]),
        ("color = 'red' OR size > 5", []),
        ("NOT color = 'red'", []),
        ("color <> 'red' AND color LIKE 'r%' AND color IS NULL", []),
        ("color = size", []),
        ("h.delivery-count = 0 AND p.creation-time = 5 AND m.x = 'y'", []),
    ],
)
def test_conditions(text: str, found: list[str]) -> None:
    """A required equality leads to a selector, or one of several alternatives does; a negatable or textless one does not."""
    assert [" ".join(group) for group in groups(read(text))] == found


def test_conditions_are_written() -> None:
    """As scripts store them: a group of conditions, each with its length in bytes."""
    assert conditions(read("color = 'rööd' OR n = 1")) == "g26:k14:a.color=röödk5:a.n#1"
    assert conditions(read("color > 'red'")) == ""
