"""begin_delivery: the delivery of a prepared message begins."""

from tests.lua.driver import T0
from tests.lua.messages import claimed, conclude, hold, named
from tests.lua.records import Records


def test_claim(records: Records) -> None:
    """S11, SX8: a prepared message is returned as often as asked; a delivered one says so; another is unknown."""
    name = named("a@x", "1")
    assert claimed(records, name) == ["item-not-found"]
    hold(records, name)
    assert claimed(records, name) == claimed(records, name, after=7) == ["ok", "n1 d1 body"]
    assert records.client.zscore(records.key("deliveries_begun"), name) == T0 + 7
    conclude(records, name)
    assert claimed(records, name) == ["replayed"]


def test_the_sender_is_the_full_jid(records: Records) -> None:
    """S14: another resource has other messages."""
    hold(records, named("a@x", "1", "a"))
    assert claimed(records, named("a@x", "1", "b")) == ["item-not-found"]
