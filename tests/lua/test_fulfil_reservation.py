"""fulfil_reservation: the first body of a reserved item counts, whatever comes after it (RX1)."""

from tests.lua.driver import T0
from tests.lua.messages import HOUR, conclude, hold, named, redeem, reserve
from tests.lua.records import Records

MINUTE = 60_000


def reserved(records: Records, whose: str = "a@x", nonce: str = "c0ffee") -> str:
    """Reserve an item for a minute; return the name of its message."""
    item = reserve(records, whose, nonce, hold_ms=MINUTE)[1]
    return named(whose, f"jobs\0{item}", "")


def test_first_body_wins(records: Records) -> None:
    """A copy of the first body gets the same answer and record; another body is refused."""
    name = reserved(records)
    assert redeem(records, name, "n1 d1 body") == ["ok", "n1 d1 body"]
    assert redeem(records, name, "n2 d1 body") == ["ok", "n1 d1 body"]
    assert redeem(records, name, "n3 d2 other") == ["reservation-used"]
    assert records.client.zscore(records.key("deliveries_begun"), name) == T0


def test_after_it_is_published(records: Records) -> None:
    """Within the window the same holds when the item is in its queue, or has left it."""
    name = reserved(records)
    redeem(records, name, "n1 d1 body")
    conclude(records, name)
    assert redeem(records, name, "n2 d1 body", after=HOUR - 1) == ["replayed"]
    assert redeem(records, name, "n2 d2 other", after=HOUR - 1) == ["reservation-used"]
    assert records.hash("prepared") == records.hash("prepared_bytes") == {}


def test_if_replayed(records: Records) -> None:
    """A body that is not known to be published changes nothing, then."""
    name = reserved(records)

    def replayed(record: str) -> str:
        asked = {"name": name, "record": record, "source_bytes": 9_999, "total_bytes": 9_999, "remembered": 99}
        word: str = records.run("fulfil_reservation", if_replayed="1", **asked)[0]
        return word

    before = records.hash("prepared")
    assert replayed("n1 d1 body") == "held"
    assert records.hash("prepared") == before and not records.client.exists(records.key("deliveries_begun"))
    redeem(records, name, "n1 d1 body")
    assert replayed("n1 d1 body") == "held"
    conclude(records, name)
    assert replayed("n2 d1 body") == "replayed"
    assert replayed("n2 d2 other") == "reservation-used"


def test_too_late(records: Records) -> None:
    """An expired reservation takes no body; one that was used in time may be repeated."""
    late, begun = reserved(records), reserved(records, nonce="beef")
    redeem(records, begun, "n1 d1 body", after=MINUTE - 1)
    assert redeem(records, late, after=MINUTE) == ["reservation-expired"]
    assert redeem(records, begun, "n2 d1 body", after=HOUR)[0] == "ok"
    assert redeem(records, named("a@x", "jobs\0r99999999999999-c0ffee", "")) == ["item-not-found"]
    assert redeem(records, named("a@x", "jobs\0made up", "")) == ["item-not-found"]


def test_refused_by_its_queue(records: Records) -> None:
    """A reservation whose delivery ended without a publish is gone."""
    name = reserved(records)
    redeem(records, name, "n1 d1 body")
    conclude(records, name, "n1", delivered="")
    assert redeem(records, name, "n2 d1 body") == ["item-not-found"]


def test_bounded(records: Records) -> None:
    """A body above the limits changes nothing: a smaller one may still come."""
    name = reserved(records)
    assert redeem(records, name, "n1 d1 " + "x" * 200) == ["too-much-held"]
    assert redeem(records, name, "n1 d1 body", remembered=0) == ["too-much-held"]
    assert hold(records, named("a@x", "1")) == "ok"
    assert redeem(records, name, "n2 d2 body") == ["ok", "n2 d2 body"]
