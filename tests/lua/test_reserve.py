"""reserve: an item id for a message that is yet to come, for a while, and not without bound."""

from tests.lua.driver import T0
from tests.lua.messages import HOUR, named, redeem, reserve
from tests.lua.records import Records

MINUTE = 60_000


def test_tells_until_when(records: Records) -> None:
    """The id says until when it may be used, and the place is counted to its source."""
    assert reserve(records, "a@x", "c0ffee", hold_ms=MINUTE) == ["ok", f"r{T0 + MINUTE}-c0ffee", T0 + MINUTE]
    assert set(records.hash("prepared_bytes")) == {"", "a@x"}


def test_bounded(records: Records) -> None:
    """A source has so many reservations and held messages at once, and all together have so many."""
    for number in range(3):
        assert reserve(records, "a@x", f"a{number}")[0] == "ok"
    assert reserve(records, "a@x", "a3") == ["too-much-held"]
    for number in range(2):
        assert reserve(records, f"b{number}@x", "b0")[0] == "ok"
    assert reserve(records, "c@x", "c0") == ["too-much-held"]


def test_forgotten(records: Records) -> None:
    """What nobody has used in time makes place for others, and leaves nothing behind."""
    for number in range(3):
        reserve(records, "a@x", f"a{number}", hold_ms=MINUTE)
    assert reserve(records, "a@x", "b0", after=MINUTE, hold_ms=MINUTE)[0] == "ok"
    assert len(records.hash("prepared")) == 1
    item = f"r{T0 + 2 * MINUTE}-b0"
    assert redeem(records, named("a@x", f"jobs\0{item}", ""), after=2 * MINUTE) == ["reservation-expired"]
    reserve(records, "a@x", "b1", after=3 * MINUTE)
    assert len(records.hash("prepared")) == 1


def test_outlives_no_window(records: Records) -> None:
    """A reservation may be for longer than held messages are kept."""
    item = reserve(records, "a@x", "a0", hold_ms=2 * HOUR)[1]
    reserve(records, "b@x", "b0", after=HOUR)
    assert redeem(records, named("a@x", f"jobs\0{item}", ""), after=HOUR)[0] == "ok"
