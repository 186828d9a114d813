"""Selectors of Event Hubs: the start of a link."""

from typing import Any

import pytest

from broker.model import offsets
from broker.model.names import Jid, Partition
from broker.model.problems import MalformedRequest
from broker.model.results import Event
from frontends.amqp.event_hubs import filters, numbers
from frontends.amqp.event_hubs.constants import SELECTOR_FILTER
from frontends.amqp.links.filters import Start
from frontends.amqp.protocol.filters import Filter

OFFSETS = [
    offsets.write_offset(Partition("n", "i"), f"{ms}-{seq}")
    for ms in (1_700_000_000_000, 1_700_000_000_001)
    for seq in (0, 1, 9_000, 9_001)
]


def start(text: object, descriptor: Any = SELECTOR_FILTER[0]) -> Start:  # noqa: ANN401  (of any type)
    """Read one filter."""
    return filters.start({"f": Filter(descriptor, text)})


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        (f"amqp.annotation.x-opt-offset > '{OFFSETS[2]}'", f">{OFFSETS[2]}"),
        (f" amqp.annotation.x-opt-offset>='{OFFSETS[2]}' ", OFFSETS[2]),
        ("amqp.annotation.x-opt-offset > '-1'", "@earliest"),
        ("amqp.annotation.x-opt-offset > '@latest'", "@latest"),
        ("amqp.annotation.x-opt-enqueued-time > '5'", "6"),
        ("amqp.annotation.x-opt-enqueued-time >= '5'", "5"),
        ("amqp.annotation.x-opt-enqueued-time > '-62135596800000'", "@earliest"),
    ],
)
def test_begins(text: str, begins: str) -> None:
    """E22, EX4: at an offset or a time, `>` after it; a start before all events is the beginning of the log."""
    assert start(text) == start(text, SELECTOR_FILTER[1]) == Start(begins)


def test_without() -> None:
    """E3: without a filter a link begins with later events."""
    assert filters.start({}) == Start("@latest")


@pytest.mark.parametrize(
    ("descriptor", "text"),
    [
        (SELECTOR_FILTER[0], "amqp.annotation.x-opt-offset > '5'"),
        (SELECTOR_FILTER[0], f"amqp.annotation.x-opt-offset > '>{OFFSETS[0]}'"),
        (SELECTOR_FILTER[0], f"amqp.annotation.x-opt-offset < '{OFFSETS[0]}'"),
        (SELECTOR_FILTER[0], "amqp.annotation.x-opt-offset > ''"),
        (SELECTOR_FILTER[0], "amqp.annotation.x-opt-sequence-number > '1.5'"),
        (SELECTOR_FILTER[0], "amqp.annotation.x-opt-sequence-number > '9999999999999999999'"),
        (SELECTOR_FILTER[0], "amqp.annotation.x-opt-enqueued-time > '9999999999999999999'"),
        (SELECTOR_FILTER[0], "amqp.annotation.x-opt-partition-key > '1'"),
        (SELECTOR_FILTER[0], "amqp.annotation.x-opt-offset > '-1' OR 1=1"),
        (SELECTOR_FILTER[0], ""),
        (SELECTOR_FILTER[0], 7),
        ("another:filter", "amqp.annotation.x-opt-offset > '-1'"),
    ],
)
def test_refused(descriptor: str, text: object) -> None:
    """Guarantee 7: an unsupported selector is refused, not ignored."""
    with pytest.raises(MalformedRequest):
        start(text, descriptor)


@pytest.mark.parametrize("order", [">", ">="])
@pytest.mark.parametrize("place", range(8))
def test_numbers(order: str, place: int) -> None:
    """E22: from a number on no later event is skipped, also where events share one; numbers follow the log."""
    found = [numbers.number(offset) for offset in OFFSETS]
    assert found == sorted(found) and found[2] == found[3] and max(found) < 2**53
    begin = start(f"amqp.annotation.x-opt-sequence-number {order} '{found[place]}'")
    assert begin.first
    selected = [begin.first("", Event(offset, 0, "i", "", Jid("a@b"), b"")) for offset in OFFSETS]
    assert selected[place + 1 :] == [True] * (len(OFFSETS) - place - 1)
    assert selected[place] == (order == ">=" or found.count(found[place]) > 1)
    assert not any(chosen for chosen, number in zip(selected, found, strict=True) if number < found[place])
    assert int(begin.begin) <= int(OFFSETS[place][:20])
    assert start("amqp.annotation.x-opt-sequence-number > '-1'").begin <= begin.begin
