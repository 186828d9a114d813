"""Filters: the start of a link."""

from typing import Any

import pytest

from broker.model import offsets
from broker.model.names import Jid, Partition
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Event
from frontends.amqp.constants import ANNOTATIONS_FILTER, OFFSET, SQL_FILTER, TIMESTAMP
from frontends.amqp.links import filters
from frontends.amqp.links.filters import Start
from frontends.amqp.messages import message
from frontends.amqp.protocol import types
from frontends.amqp.protocol.filters import Filter

OFFSETS = [offsets.write_offset(Partition("n", f"i{number}"), f"{number}-0") for number in range(500)]


def start(**said: Any) -> str:  # noqa: ANN401  (of any type)
    """Read one annotations filter."""
    names = {"offset": OFFSET, "timestamp": TIMESTAMP}
    value = {names[name]: each for name, each in said.items()}
    return filters.start({"f": Filter(ANNOTATIONS_FILTER[1], value)}).begin


def test_every_offset() -> None:
    """E17, EX6: every issued offset is accepted, also one that happens to be all digits."""
    assert any(each.isdecimal() for each in OFFSETS)
    assert [start(offset=each) for each in OFFSETS] == OFFSETS


@pytest.mark.parametrize(
    ("said", "begins"),
    [
        ({"timestamp": 5}, "5"),
        ({"offset": "@earliest"}, "@earliest"),
        ({"offset": "@latest", "timestamp": 5}, "@latest"),
        ({"offset": "@earliest", "timestamp": 5}, "5"),
        ({"offset": OFFSETS[7], "timestamp": 7}, OFFSETS[7]),
        ({"offset": OFFSETS[7], "timestamp": 8}, "8"),
    ],
)
def test_both(said: dict[str, Any], begins: str) -> None:
    """E23, EX9: of an offset and a time the later decides; EX5: the reserved ones are words, not texts to compare."""
    assert start(**said) == begins


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        (f"d.{OFFSET} > '{OFFSETS[7]}'", f">{OFFSETS[7]}"),
        (f"'{OFFSETS[7]}' <= m.{OFFSET}", OFFSETS[7]),
        (f"delivery_annotations.{OFFSET} >= '@earliest'", "@earliest"),
        (f"m.{OFFSET} > '@latest'", "@latest"),
        (f"m.{TIMESTAMP} > 5", "6"),
        (f"m.{TIMESTAMP} >= 5.5", "6"),
    ],
)
def test_sql_begins(text: str, begins: str) -> None:
    """E24, EX2, EX4, EX5: a comparison with an offset or a time is a start, `>` after it."""
    assert filters.start({"f": Filter(SQL_FILTER[0], text)}) == Start(begins)


@pytest.mark.parametrize(
    ("text", "begins", "first"),
    [
        (f"d.{OFFSET} > '{OFFSETS[3]}' AND d.{TIMESTAMP} > 7", f">{OFFSETS[3]}", 8),
        (f"d.{TIMESTAMP} = 9 OR d.{OFFSET} = '{OFFSETS[4]}'", "@earliest", 4),
        ("TRUE", "@earliest", 0),
        ("FALSE", "@earliest", None),
        (f"d.{OFFSET} >= '@earliest' AND d.{TIMESTAMP} > 7", "@earliest", 8),
        (f"d.{TIMESTAMP} > 7 AND m.{OFFSET} > '@earliest'", "8", 8),
        (f"'@earliest' < d.{OFFSET} AND TRUE", "@earliest", 0),
        (f"NOT d.{OFFSET} > '@earliest'", "@earliest", None),
        (f"d.{OFFSET} >= '@latest' AND TRUE", "@latest", 400),
        (f"'@latest' < d.{OFFSET} OR d.{TIMESTAMP} = 450", "@earliest", 400),
        (f"d.{OFFSET} < '@latest' AND d.{TIMESTAMP} > 350", "351", 351),
        (f"d.{OFFSET} = '@latest'", "@earliest", None),
        (f"d.{OFFSET} BETWEEN '{OFFSETS[390]}' AND '@latest' AND d.{TIMESTAMP} <> 390", OFFSETS[390], 391),
    ],
)
def test_sql_looks(text: str, begins: str, first: int | None) -> None:
    """E22, E24, EX5, EX9: any other condition is evaluated for each event, from the earliest possible one.

    `@earliest` is before all events, and `@latest` between those before the attach and those after it.
    """
    found = filters.start({"f": Filter(SQL_FILTER[1], text)})
    is_first = found.first_after(OFFSETS[399])
    assert found.begin == begins and is_first is not None
    events = [Event(each, number, "i", "", Jid("a@x"), b"") for number, each in enumerate(OFFSETS)]
    assert next((number for number, event in enumerate(events) if is_first(event)), None) == first


def test_sql_annotations() -> None:
    """E24, EX2: fields are the annotations of a message; a missing one is NULL."""
    size = types.write_map([types.symbol("x-opt-size"), b"\x54\x0c", types.symbol("x-opt-list"), b"\x45"])
    body = types.section(message.DATA, types.binary(b"x"))
    plain = Event(OFFSETS[0], 1, "i", "", Jid("a@x"), message.parse(body).envelope)
    told = Event(
        OFFSETS[1], 2, "i", "k", Jid("a@x"), message.parse(types.section(message.MESSAGE, size) + body).envelope
    )
    for text, found in (
        ("m.x-opt-size > 11", (False, True)),
        ("11 < message_annotations.x-opt-size", (False, True)),
        ("m.x-opt-size IS NULL", (True, False)),
        ("m.x-opt-list IS NULL", (True, True)),
        ("m.event-streams-group-key = 'k'", (False, True)),
        ("m.event-streams-key IS NULL AND m.event-streams-timestamp = 1", (True, False)),
        ("m.x-opt-size > '@earliest'", (False, False)),
    ):
        begin = filters.start({"f": Filter(SQL_FILTER[0], text)})
        is_first = begin.first_after(OFFSETS[1])
        assert begin.begin == "@earliest" and is_first is not None
        assert (is_first(plain), is_first(told)) == found, text


def test_none() -> None:
    """E3: without a filter it begins with later events."""
    assert filters.start({}) == Start("@latest")


@pytest.mark.parametrize(
    ("descriptor", "value", "problem"),
    [
        (ANNOTATIONS_FILTER[0], {OFFSET: "1700000000000"}, Problem.OFFSET_INVALID),
        (ANNOTATIONS_FILTER[0], {OFFSET: f">{OFFSETS[0]}"}, Problem.OFFSET_INVALID),
        (ANNOTATIONS_FILTER[0], {TIMESTAMP: True}, Problem.OFFSET_INVALID),
        (SQL_FILTER[1], 7, Problem.OFFSET_INVALID),
        (SQL_FILTER[1], f"d.{OFFSET} >", Problem.OFFSET_INVALID),
        (SQL_FILTER[0], f"m.{OFFSET} > 'a4c5'", Problem.OFFSET_INVALID),
        (SQL_FILTER[0], f"d.{TIMESTAMP} > 'a4c5'", Problem.OFFSET_INVALID),
        (SQL_FILTER[0], f"TRUE OR 'a4c5' > d.{OFFSET}", Problem.OFFSET_INVALID),
        (SQL_FILTER[0], f"NOT d.{OFFSET} < 5", Problem.OFFSET_INVALID),
        (SQL_FILTER[0], f"m.{OFFSET} >= '>{OFFSETS[0]}'", Problem.OFFSET_INVALID),
        (SQL_FILTER[0], " AND ".join(["TRUE"] * 100), Problem.OFFSET_INVALID),
        (SQL_FILTER[0], "a.colour = 'red'", Problem.UNSUPPORTED),
        (SQL_FILTER[0], "p.subject = 'red'", Problem.UNSUPPORTED),
        (SQL_FILTER[0], "d.x-opt-size = 1", Problem.UNSUPPORTED),
    ],
)
def test_refused(descriptor: str | int, value: object, problem: Problem) -> None:
    """E24, EX8: an invalid offset or time is refused, and so is an unsupported condition."""
    with pytest.raises(MalformedRequest) as refused:
        filters.start({"f": Filter(descriptor, value)})
    assert refused.value.problem is problem
