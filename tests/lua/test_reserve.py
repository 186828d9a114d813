"""reserve: an item id for a later message, for a while, and bounded."""

from tests.lua.driver import T0
from tests.lua.messages import HOUR, named, redeem, reserve
from tests.lua.records import Records

MINUTE = 60_000


def test_tells_until_when(records: Records) -> None:
    """The id contains its expiry, and it counts against its source."""
    assert reserve(records, "a@x", "c0ffee", hold_ms=MINUTE) == ["ok", f"r{T0 + MINUTE}-c0ffee", T0 + MINUTE]
    assert set(records.hash("prepared_bytes")) == {"", "a@x"}


def test_bounded(records: Records) -> None:
    """The reservations and prepared messages of a source, and of all together, are bounded."""
    for number in range(3):
        assert reserve(records, "a@x", f"a{number}")[0] == "ok"
    assert reserve(records, "a@x", "a3") == ["too-much-held"]
    for number in range(2):
        assert reserve(records, f"b{number}@x", "b0")[0] == "ok"
    assert reserve(records, "c@x", "c0") == ["too-much-held"]


def test_forgotten(records: Records) -> None:
    """Unused reservations make room after their time, and leave nothing."""
    for number in range(3):
        reserve(records, "a@x", f"a{number}", hold_ms=MINUTE)
    assert reserve(records, "a@x", "b0", after=MINUTE, hold_ms=MINUTE)[0] == "ok"
    assert len(records.hash("prepared")) == 1
    item = f"r{T0 + 2 * MINUTE}-b0"
    assert redeem(records, named("a@x", f"jobs\0{item}", ""), after=2 * MINUTE) == ["reservation-expired"]
    reserve(records, "a@x", "b1", after=3 * MINUTE)
    assert len(records.hash("prepared")) == 1


def test_outlives_no_window(records: Records) -> None:
    """A reservation may last longer than prepared messages are kept."""
    item = reserve(records, "a@x", "a0", hold_ms=2 * HOUR)[1]
    reserve(records, "b@x", "b0", after=HOUR)
    assert redeem(records, named("a@x", f"jobs\0{item}", ""), after=HOUR)[0] == "ok"
