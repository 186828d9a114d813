"""claim_overdue: deliveries that were not ended."""

from typing import Any

from tests.lua.driver import T0
from tests.lua.messages import HOUR, claimed, conclude, hold, named
from tests.lua.records import Records


def overdue(records: Records, after: int, most: int = 10) -> list[Any]:
    """Claim deliveries that began five seconds ago."""
    code, found = records.run("claim_overdue", now=T0 + after, window_ms=HOUR, late_ms=5_000, most=most)
    assert code == "ok"
    return list(found)


def test_late_claims(records: Records) -> None:
    """A delivery five seconds old is claimed by one, with its message; messages without one are left alone."""
    first, second, third = (named("a@x", msg_id) for msg_id in "123")
    for name in (first, second, third):
        hold(records, name)
    claimed(records, first)
    claimed(records, second, after=1)
    assert overdue(records, 4_999) == []
    assert overdue(records, 5_001, most=1) == [[first, "n1 d1 body"]]
    assert overdue(records, 5_001) == [[second, "n1 d1 body"]]
    assert overdue(records, 5_001) == []
    conclude(records, first)
    assert overdue(records, 11_000) == [[second, "n1 d1 body"]]


def test_old_ones_go(records: Records) -> None:
    """Guarantee 6: messages older than the window are dropped, a few at a time, also when nobody sends any more."""
    for number in range(25):
        hold(records, named(f"u{number}@x", "1"), total_messages=100)
    overdue(records, HOUR)
    assert len(records.hash("prepared")) == 5
    overdue(records, HOUR)
    assert records.hash("prepared") == records.hash("prepared_bytes") == {}


def test_what_has_begun_is_not_forgotten(records: Records) -> None:
    """S11: a delivery that began at the end of the window may have published, so it is ended; its sender would send it anew."""
    name = named("a@x", "1")
    hold(records, name)
    claimed(records, name, after=HOUR - 1)
    assert overdue(records, HOUR + 4_999) == [[name, "n1 d1 body"]]
    claimed(records, name, after=2 * HOUR - 2)
    assert overdue(records, 2 * HOUR - 1) == []
    # Not for ever: the ticket of its publish is forgotten as well.
    assert claimed(records, name, after=2 * HOUR) == ["item-not-found"]
