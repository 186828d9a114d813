"""list_frontends: listed and disconnected frontends."""

from tests.lua.driver import T0
from tests.lua.records import Records
from tests.lua.test_disconnect_frontend import disconnect
from tests.lua.test_heartbeat import beat


def test_listed(records: Records) -> None:
    """Issue 8: each with the time since its heartbeat; a disconnected one with since when and by whom."""
    assert records.run("list_frontends", now=T0) == ["ok", []]
    for number, name in enumerate(("f1", "f2", "f3")):
        beat(records, name, number)
    disconnect(records, "f3", 100, by="ann admin@x")
    assert records.run("list_frontends", now=T0 + 150) == [
        "ok",
        [["f3", 50, "ann admin@x"], ["f1", 150, ""], ["f2", 149, ""]],
    ]
