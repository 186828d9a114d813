"""prepare_message: messages between the two steps of an assured publish, and their limits."""

import pytest

from tests.lua.messages import HOUR, claimed, conclude, hold, named
from tests.lua.records import Records


def test_first_copy_wins(records: Records) -> None:
    """S10: a second message under a prepared msgId gets the same answer and is not stored."""
    assert hold(records, named("a@x", "1")) == "ok"
    assert hold(records, named("a@x", "1"), "n2 d2 other") == "ok"
    assert claimed(records, named("a@x", "1")) == ["ok", "n1 d1 body"]
    assert records.hash("prepared_bytes") == {"": "17", "a@x": "17"}


def test_late_copy_of_a_delivered_one(records: Records) -> None:
    """SX9: within the window a copy of a delivered message is accepted and not stored again."""
    hold(records, named("a@x", "1"))
    conclude(records, named("a@x", "1"))
    assert hold(records, named("a@x", "1"), "n2 d1 body", after=HOUR - 1) == "ok"
    assert claimed(records, named("a@x", "1"), after=HOUR - 1) == ["replayed"]
    assert records.hash("prepared") == records.hash("prepared_bytes") == {}


def test_reclaimed_name(records: Records) -> None:
    """SX10: a delivered msgId with another message is a new one."""
    hold(records, named("a@x", "1"))
    conclude(records, named("a@x", "1"))
    assert hold(records, named("a@x", "1"), "n2 d2 other") == "ok"
    assert claimed(records, named("a@x", "1")) == ["ok", "n2 d2 other"]
    # A late end of the earlier delivery does not affect it.
    conclude(records, named("a@x", "1"), "n1")
    assert claimed(records, named("a@x", "1")) == ["ok", "n2 d2 other"]


def test_late_copy_of_an_earlier_one(records: Records) -> None:
    """SX9, SX10: a copy of an earlier message of a reused name is known as well, up to sixteen messages back."""
    name = named("a@x", "1")
    for number in range(18):
        assert hold(records, name, f"n{number} d{number:02} body") == "ok"
        conclude(records, name, f"n{number}")
    for number in (17, 2):
        assert hold(records, name, f"late d{number:02} body") == "ok"
        assert claimed(records, name) == ["replayed"]
    hold(records, name, "late d01 body")
    assert claimed(records, name) == ["ok", "late d01 body"]


def test_refused_after_it_was_reclaimed(records: Records) -> None:
    """S13: a delivered earlier message of the name says nothing about a later one that was refused."""
    name = named("a@x", "1")
    hold(records, name)
    conclude(records, name)
    hold(records, name, "n2 d2 other")
    conclude(records, name, "n2", delivered="")
    assert claimed(records, name) == ["item-not-found"]
    assert hold(records, name, "n3 d1 body") == "ok"
    assert claimed(records, name) == ["item-not-found"]
    hold(records, name, "n4 d2 other")
    conclude(records, name, "n4")
    assert claimed(records, name) == ["replayed"]


def test_messages_of_a_source(records: Records) -> None:
    """S19, SX11: the limit is the bare JID's, however many resources it has; similar names have their own."""
    for number, at in enumerate(("a", "b", "")):
        assert hold(records, named("b@x", str(number), at)) == "ok"
    assert hold(records, named("b@x", "9", "c")) == "too-much-held"
    assert hold(records, named("b@x", "1", "b")) == "ok"
    assert hold(records, named("b@xy", "1")) == "ok"
    assert hold(records, named("b", "1")) == "ok"


def test_messages_of_all(records: Records) -> None:
    """S20: all messages together are bounded, and delivered ones make room."""
    for number in range(5):
        assert hold(records, named(f"u{number}@x", "1")) == "ok"
    assert hold(records, named("z@x", "1")) == "too-much-held"
    conclude(records, named("u1@x", "1"))
    assert hold(records, named("z@x", "1")) == "ok"


@pytest.mark.parametrize(("total_bytes", "fits"), [(1000, 180), (150, 130)])
def test_bytes(records: Records, total_bytes: int, fits: int) -> None:
    """S19, S20: bytes are counted with the sets, and are zero when nothing is stored."""
    name = named("a@x", "1")
    assert hold(records, name, "n1 d1 " + "x" * 300, total_bytes=total_bytes) == "too-much-held"
    assert hold(records, name, "n1 d1 " + "x" * fits, total_bytes=total_bytes) == "ok"
    assert hold(records, named("a@x", "2"), total_bytes=total_bytes) == "too-much-held"
    conclude(records, name, delivered="")
    assert records.hash("prepared_bytes") == {}
    assert hold(records, named("a@x", "2"), total_bytes=total_bytes) == "ok"


def test_marks_are_bounded(records: Records) -> None:
    """Guarantee 6: when as many deliveries are remembered as allowed, no more are accepted until the window has moved."""
    for number in range(4):
        hold(records, named("a@x", str(number)), after=number)
        conclude(records, named("a@x", str(number)), after=number)
    assert hold(records, named("a@x", "9"), remembered=5) == "too-much-held"
    assert hold(records, named("a@x", "9"), remembered=6) == "ok"


def test_marks_go_by_generation(records: Records) -> None:
    """SX9: an id is remembered for one window at least, and for two at most while others come."""
    for number in (0, 1, 2):
        hold(records, named("a@x", str(number)), after=number * HOUR)
        conclude(records, named("a@x", str(number)), after=number * HOUR)
    assert claimed(records, named("a@x", "0")) == ["item-not-found"]
    assert claimed(records, named("a@x", "1")) == claimed(records, named("a@x", "2")) == ["replayed"]
    assert 0 < records.client.pttl(records.key("delivered_old")) <= 2 * HOUR


def test_what_nobody_asks_for_is_dropped(records: Records) -> None:
    """SX8: messages older than the window are dropped, with all that counted them."""
    hold(records, named("a@x", "old"))
    assert hold(records, named("b@x", "new"), after=HOUR) == "ok"
    assert claimed(records, named("a@x", "old")) == ["item-not-found"]
    assert records.hash("prepared_bytes") == {"": "19", "b@x": "19"}
