"""list_subscribers: who is subscribed."""

from broker.redis_core.operations.operation import subid
from tests.lua.driver import Queue


def test_in_bounded_parts(queue: Queue) -> None:
    """X7: all of them, part by part."""
    jids = {f"w{n}@example.org/a-resource-of-some-length-so-that-the-hash-is-a-table" for n in range(500)}
    for jid in jids:
        queue.client.hset(queue.key("subscribers"), subid(jid), f"0 0 unacknowledged {jid}")
    found: set[str] = set()
    scan, parts = "0", 0
    while parts == 0 or scan != "0":
        scan, part, _scopes, names, *_ = queue.run("list_subscribers", scan=scan).rows
        found |= set(part)
        assert names == [subid(jid) for jid in part]
        parts += 1
    assert found == jids
