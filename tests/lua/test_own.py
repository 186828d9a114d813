"""own: how many nodes a JID has created."""

from tests.lua.records import Records


def test_quota(records: Records) -> None:
    """Design §3: past the quota the caller is shown which nodes count; the same node counts once."""
    assert records.run("own", kind="gained", node="a", most=2) == ["ok", []]
    assert records.run("own", kind="gained", node="b", most=2) == ["ok", []]
    assert records.run("own", kind="gained", node="a", most=2) == ["ok", []]
    code, known = records.run("own", kind="gained", node="c", most=2)
    assert code == "too-many" and sorted(known) == ["a", "b"]
    assert records.run("own", kind="lost", node="a", most=2) == ["ok", []]
    assert records.run("own", kind="gained", node="c", most=2) == ["ok", []]
