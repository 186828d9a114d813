"""set_group_member: members of a node's groups that name no partitions."""

from tests.lua.records import Records


def enlist(
    records: Records, kind: str, subid: str, member: str = "", former: str = "", *, life: str = "i1", most: int = 2
) -> str:
    """Add a member, change it, or remove it."""
    asked = {"kind": kind, "subid": subid, "member": member, "former": former, "most": most}
    word: str = records.run("set_group_member", incarnation=life, **asked)[0]
    return word


def test_joins_and_leaves(records: Records) -> None:
    """A member stays until it leaves; joining again changes its options; both are idempotent."""
    records.run("create_node", incarnation="i1", owner="alice@x", created=1)
    assert enlist(records, "joined", "1", "g 5 unacknowledged w@x") == "ok"
    assert enlist(records, "joined", "1", "g 6 unacknowledged w@x") == "ok"
    assert enlist(records, "joined", "2", "h 1 unacknowledged v@x") == "ok"
    assert records.hash("members") == {"1": "g 6 unacknowledged w@x", "2": "h 1 unacknowledged v@x"}
    # Of two changes of what it was, the first counts.
    for credit in (7, 8):
        assert enlist(records, "joined", "1", f"g {credit} unacknowledged w@x", "g 6 unacknowledged w@x") == "ok"
    assert records.hash("members")["1"] == "g 7 unacknowledged w@x"
    assert enlist(records, "left", "2") == enlist(records, "left", "2") == "ok"
    # One that has left is not brought back by a change.
    assert enlist(records, "joined", "2", "h 2 unacknowledged v@x", "h 1 unacknowledged v@x") == "ok"
    assert list(records.hash("members")) == ["1"]


def test_bound(records: Records) -> None:
    """Guarantee 6: past the bound new members are refused, and a present one may still change its options."""
    records.run("create_node", incarnation="i1", owner="alice@x", created=1)
    assert [enlist(records, "joined", subid, "g 1 - w@x") for subid in "123"] == ["ok", "ok", "too-many"]
    assert enlist(records, "joined", "2", "g 2 - w@x") == "ok"


def test_another_life(records: Records) -> None:
    """Members of a deleted node do not join the next of its name, and go with it."""
    records.run("create_node", incarnation="i1", owner="alice@x", created=1)
    assert enlist(records, "joined", "1", "g 1 - w@x", life="i0") == "stale"
    enlist(records, "joined", "1", "g 1 - w@x")
    records.run("delete_node", incarnation="i1", revision=1)
    assert records.hash("members") == {}
    assert enlist(records, "joined", "1", "g 1 - w@x") == "stale"
