"""track_presence: online resources, and what to unsubscribe when they go (Q33, QX16)."""

from typing import Any

from tests.lua.records import Records

NOW = 1_700_000_000_000


def attend(records: Records, kind: str, resource: str = "", *, now: int = NOW, most: int = 10) -> list[Any]:
    """Report presence of one bare JID."""
    return records.run("track_presence", kind=kind, resource=resource, now=now, idle_seconds=60, most=most)


def subscribed(records: Records, member: str) -> None:
    """Add a subscription to an index."""
    records.run("add_to_index", index="nodes", kind="settled", member=member, now=NOW, idle_seconds=60, most=10)


def left(records: Records, member: str) -> None:
    """Remove it."""
    records.run("remove_from_index", {"member": member, "upto": ""}, index="nodes", idle_seconds=60)


def test_full_jid_goes(records: Records) -> None:
    """Q33: a resource that goes offline loses its subscriptions, and no other resource's."""
    attend(records, "available", "1")
    attend(records, "available", "2")
    subscribed(records, "1 jobs")
    subscribed(records, "2 jobs")
    assert attend(records, "unavailable", "1") == ["ok", ["1 jobs"]]
    left(records, "1 jobs")
    assert attend(records, "unavailable", "1") == ["ok", []]


def test_bare_jid_goes_with_its_last_resource(records: Records) -> None:
    """QX16: a bare subscription ends when the last known resource leaves."""
    attend(records, "available", "1")
    attend(records, "available", "2")
    subscribed(records, " my jobs")
    assert attend(records, "unavailable", "1") == ["ok", []]
    assert attend(records, "unavailable", "2") == ["ok", [" my jobs"]]


def test_presence_that_nobody_announced(records: Records) -> None:
    """QX16: a resource whose `available` was never received may still leave."""
    subscribed(records, "1 jobs")
    assert attend(records, "unavailable", "1") == ["ok", ["1 jobs"]]


def test_repeated_until_left(records: Records) -> None:
    """A crash between the report and the unsubscribe loses nothing: the next report returns the same."""
    subscribed(records, "1 jobs")
    assert attend(records, "unavailable", "1") == attend(records, "unavailable", "1") == ["ok", ["1 jobs"]]


def test_the_longest_unheard_gives_way(records: Records) -> None:
    """Guarantee 6: resources whose `unavailable` was lost never keep out a new one."""
    for later, resource in enumerate(("1", "2", "1", "3")):
        assert attend(records, "available", resource, now=NOW + later, most=2) == ["ok", []]
    assert records.client.zrange(records.key("resources"), 0, -1) == [b"1", b"3"]


def test_forgotten_by_itself(records: Records) -> None:
    """Guarantee 6: presence without subscriptions expires by itself, with subscriptions it stays."""
    attend(records, "available", "1")
    assert 0 < records.client.ttl(records.key("resources")) <= 60
    subscribed(records, "1 jobs")
    assert records.client.ttl(records.key("resources")) == -1
    left(records, "1 jobs")
    assert 0 < records.client.ttl(records.key("resources")) <= 60
