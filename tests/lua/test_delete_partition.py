"""delete_partition: a partition is closed and freed."""

from broker.redis_core.operations.operation import subid
from tests.lua.driver import Queue
from tests.lua.test_browse import everything
from tests.lua.worded import W1, W2


def test_frees_all(queue: Queue) -> None:
    """P24: subscribers are returned, everything is freed but a mark, and the mark expires."""
    everything(queue)
    queue.publish("x", dedupe="ignore")
    queue.subscribe(W2, 0)
    queue.retract(W1, "locked", request="r")
    scan, told = queue.run("delete_partition", grave_seconds=60).rows
    assert scan == "0" and sorted(told) == [W1, W2]
    assert queue.kept() == {"meta"}
    assert 0 < queue.client.ttl(queue.key("meta")) <= 60


def test_is_final(queue: Queue) -> None:
    """P24: late calls find no node, and nobody opens it again; a second deletion changes nothing."""
    queue.run("delete_partition")
    for answer in (
        queue.publish("a"),
        queue.retract(W1, "a"),
        queue.subscribe(W1, 1),
        queue.expire(),
        queue.run("purge"),
    ):
        assert answer.code == "deleted"
    assert queue.open(revision=9).code == "deleted"
    assert queue.run("delete_partition").rows == ["0", []]
    assert queue.kept() == {"meta"}


def test_in_bounded_parts(queue: Queue) -> None:
    """X7: many subscribers are returned part by part; from the first part on the partition is closed."""
    jids = {f"w{n}@example.org/a-resource-of-some-length-so-that-the-hash-is-a-table" for n in range(600)}
    for jid in jids:
        queue.runner.client.hset(queue.key("subscribers"), subid(jid), f"0 0 unacknowledged {jid}")
    told: set[str] = set()
    scan = "0"
    parts = 0
    while parts == 0 or scan != "0":
        scan, part = queue.run("delete_partition", scan=scan).rows
        told |= set(part)
        parts += 1
        assert queue.publish("a").code == "deleted"
    assert told == jids
    assert queue.kept() == {"meta"}
