"""end_delivery: the delivery of a prepared message ends."""

from tests.lua.messages import claimed, conclude, hold, named
from tests.lua.records import Records


def test_delivered(records: Records) -> None:
    """S11: the message is removed and its id remembered; a second end changes nothing."""
    name = named("a@x", "1")
    hold(records, name)
    claimed(records, name)
    conclude(records, name)
    conclude(records, name)
    assert records.hash("prepared") == records.hash("prepared_bytes") == {}
    assert not records.client.exists(
        *(records.key(key) for key in ("prepared_since", "prepared_names", "deliveries_begun"))
    )
    assert records.hash("delivered")[name] == "d1"


def test_refused(records: Records) -> None:
    """S13: a message that cannot be delivered is removed without a mark, so its name is as new."""
    name = named("a@x", "1")
    hold(records, name)
    conclude(records, name, delivered="")
    assert claimed(records, name) == ["item-not-found"]
    assert hold(records, name, "n2 d1 body") == "ok"
    assert claimed(records, name) == ["ok", "n2 d1 body"]
