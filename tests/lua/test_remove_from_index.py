"""remove_from_index: ended entries leave an index by JID, and entries whose change is under way stay."""

from typing import Any

from tests.lua.records import Records

NOW = 1_700_000_000_000


def note(records: Records, member: str, kind: str, at: int) -> None:
    """Add an entry."""
    records.run("add_to_index", index="created_nodes", kind=kind, member=member, now=NOW + at, idle_seconds=60, most=10)


def strike(records: Records, upto: str | int) -> list[str]:
    """Remove the three entries, and return those that stay."""
    rows = [{"member": name, "upto": upto} for name in ("coming", "settled", "later", "unknown")]
    assert records.run("remove_from_index", *rows, index="created_nodes", idle_seconds=60) == ["ok"]
    found: Any = records.client.zrange(records.key("created_nodes"), 0, -1)
    return sorted(name.decode() for name in found)


def test_what_is_coming_stays(records: Records) -> None:
    """A late report of an end removes no entry that was added for a later change."""
    note(records, "settled", "settled", 0)
    note(records, "coming", "coming", 0)
    assert strike(records, "") == ["coming"]


def test_no_later_than(records: Records) -> None:
    """With a time, all entries added up to then are removed, under way or not."""
    note(records, "settled", "settled", 1)
    note(records, "coming", "coming", 1)
    note(records, "later", "coming", 2)
    assert strike(records, NOW) == ["coming", "later", "settled"]
    assert strike(records, NOW + 1) == ["later"]
