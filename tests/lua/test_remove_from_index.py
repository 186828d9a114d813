"""remove_from_index: what is so no more leaves an index by JID, and what is just coming stays."""

from typing import Any

from tests.lua.records import Records

NOW = 1_700_000_000_000


def note(records: Records, member: str, kind: str, at: int) -> None:
    """Note an entry."""
    records.run("add_to_index", index="created_nodes", kind=kind, member=member, now=NOW + at, idle_seconds=60, most=10)


def strike(records: Records, upto: str | int) -> list[str]:
    """Strike off the three that there are, and give those that stay."""
    rows = [{"member": name, "upto": upto} for name in ("coming", "settled", "later", "unknown")]
    assert records.run("remove_from_index", *rows, index="created_nodes", idle_seconds=60) == ["ok"]
    found: Any = records.client.zrange(records.key("created_nodes"), 0, -1)
    return sorted(name.decode() for name in found)


def test_what_is_coming_stays(records: Records) -> None:
    """An end that is heard of late strikes off no entry that was noted for what comes after it."""
    note(records, "settled", "settled", 0)
    note(records, "coming", "coming", 0)
    assert strike(records, "") == ["coming"]


def test_no_later_than(records: Records) -> None:
    """Whoever knows up to when nothing was so strikes off what was noted until then, coming or not."""
    note(records, "settled", "settled", 1)
    note(records, "coming", "coming", 1)
    note(records, "later", "coming", 2)
    assert strike(records, NOW) == ["coming", "later", "settled"]
    assert strike(records, NOW + 1) == ["later"]
