"""attend: who is here, and what they leave when they go (Q33, QX16)."""

from typing import Any

from tests.lua.records import Records


def attend(records: Records, kind: str, resource: str = "", node: str = "", most: int = 10) -> list[Any]:
    """Note an event of one bare JID."""
    return records.run("attend", kind=kind, resource=resource, node=node, idle_seconds=60, most=most)


def test_full_jid_goes(records: Records) -> None:
    """Q33: a resource that goes leaves the nodes that it subscribed to, and no other resource's."""
    attend(records, "available", "1")
    attend(records, "available", "2")
    attend(records, "subscribed", "1", "jobs")
    attend(records, "subscribed", "2", "jobs")
    assert attend(records, "unavailable", "1") == ["ok", ["1 jobs"]]
    attend(records, "left", "1", "jobs")
    assert attend(records, "unavailable", "1") == ["ok", []]


def test_bare_jid_goes_with_its_last_resource(records: Records) -> None:
    """QX16: a bare subscription ends when the last resource that is known leaves."""
    attend(records, "available", "1")
    attend(records, "available", "2")
    attend(records, "subscribed", "", "my jobs")
    assert attend(records, "unavailable", "1") == ["ok", []]
    assert attend(records, "unavailable", "2") == ["ok", [" my jobs"]]


def test_presence_that_nobody_announced(records: Records) -> None:
    """QX16: who never said that it is here may still say that it goes."""
    attend(records, "subscribed", "1", "jobs")
    assert attend(records, "unavailable", "1") == ["ok", ["1 jobs"]]


def test_repeated_until_left(records: Records) -> None:
    """A crash between hearing and leaving loses nothing: the next time answers the same."""
    attend(records, "subscribed", "1", "jobs")
    assert attend(records, "unavailable", "1") == attend(records, "unavailable", "1") == ["ok", ["1 jobs"]]


def test_bound(records: Records) -> None:
    """P6, guarantee 6: past the bound a new seat is refused; one that exists already is not."""
    assert attend(records, "subscribed", "1", "a", most=1) == ["ok", []]
    assert attend(records, "subscribed", "1", "b", most=1) == ["too-many"]
    assert attend(records, "subscribed", "1", "a", most=1) == ["ok", ["1 a"]]
    assert attend(records, "available", "1", most=1) == ["ok", []]
    assert attend(records, "available", "2", most=1) == ["too-many"]
    assert attend(records, "available", "1", most=1) == ["ok", []]


def test_forgotten_by_itself(records: Records) -> None:
    """Guarantee 6: presence without subscriptions ends by itself, with subscriptions it stays."""
    attend(records, "available", "1")
    assert 0 < records.client.ttl(records.key("resources")) <= 60
    attend(records, "subscribed", "1", "jobs")
    assert records.client.ttl(records.key("resources")) == -1
    attend(records, "left", "1", "jobs")
    assert 0 < records.client.ttl(records.key("resources")) <= 60


def test_known_before(records: Records) -> None:
    """P6: who subscribes hears whether the seat was known: a refusal must not take off one that was granted earlier."""
    assert attend(records, "subscribed", "1", "jobs") == ["ok", []]
    assert attend(records, "subscribed", "1", "jobs") == ["ok", ["1 jobs"]]
    attend(records, "left", "1", "jobs")
    assert attend(records, "subscribed", "1", "jobs") == ["ok", []]


def test_what_waits_for_approval(records: Records) -> None:
    """P10, guarantee 6: what waits is listed apart, so that nobody leaves it with its presence, and within a bound."""
    assert attend(records, "asked", "1", "a", most=1) == ["ok", []]
    assert attend(records, "asked", "1", "a", most=1) == ["ok", []]
    assert attend(records, "asked", "1", "b", most=1) == ["too-many"]
    assert attend(records, "unavailable", "1") == ["ok", []]
    attend(records, "answered", "1", "a")
    assert attend(records, "asked", "1", "b", most=1) == ["ok", []]
