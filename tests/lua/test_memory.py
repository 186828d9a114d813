"""Redis without memory: publishes are refused, acknowledgements work (issue "Bad input", P14)."""

from collections.abc import Iterator

import pytest
import redis

from broker.model.names import Partition
from frontends.tools.servers.redis import RedisServer, redis_binary, valkey_binary
from tests.lua.driver import PARTITIONED, SCRIPTS, Queue, Runner
from tests.lua.worded import W1, W2

GIVE_BACK = frozenset(
    {"cancel", "erase", "complete", "read_outbox", "end_entries", "note_parents",
     "retract", "unlock", "renew", "sweep", "bounce", "confirm", "unsubscribe", "purge", "take_over",
     "delete_partition", "track_presence", "heartbeat", "check_format", "delete_node", "begin_delivery",
     "end_delivery", "claim_overdue", "commit", "renew_ownership", "set_group_member",
     "claim_pending", "remove_pending", "add_to_index", "remove_from_index", "expire_tickets",
     "force_release", "disconnect_frontend", "receive", "release_reader", "leave_work",
     "subscribe", "subscribe_log", "turn", "receive_by_reference", "check_references", "acquire_partition",
     "acquire_reader", "note_served"}
)  # fmt: skip
"""Operations that free memory, let workers come who free it, or keep locks alive: they run without any left."""


@pytest.fixture(scope="module", params=[valkey_binary, redis_binary])
def client(request: pytest.FixtureRequest) -> Iterator["redis.Redis"]:
    """Provide a server of its own, with limited memory for a while."""
    with RedisServer(binary=request.param()) as server, redis.Redis.from_url(server.url) as found:
        yield found


@pytest.fixture
def full(client: "redis.Redis") -> Iterator[Queue]:
    """Return a queue with eight locked items on a server that has no memory left."""
    queue = Queue(Runner(client), Partition("jobs", "full"))
    queue.open()
    queue.publish(*"abcdefgh")
    queue.subscribe(W1, 8)
    client.config_set("maxmemory", 1)
    yield queue
    client.config_set("maxmemory", 0)
    client.flushall()


def test_publishers_are_refused(full: Queue) -> None:
    """Publish answers OOM and changes nothing, also with an acknowledgement; a worker that comes now is welcome."""
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        full.publish("x")
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        full.run("complete_and_publish", full.asked(W1, "a") | {"result": "", "publishes": "1;x", "refused": ""})
    full.subscribe(W2, 1)
    assert list(full.browse()) == list("abcdefgh")


def test_workers_go_on(full: Queue) -> None:
    """Retract, unlock, renew, bounce, sweep and the rest that frees memory run to their end."""
    assert full.retract(W1, "a", request="r").words == ["ok"]
    assert full.unlock(W1, "b", reason="why", request="r").given == [(W1, "b")]
    assert full.renew(W1, "c").words == ["ok"]
    again = full.unlock(W1, "d").deliveries[0]
    assert full.bounce(W1, again).words == ["ok"]
    (letter,) = full.letters(full.unlock(W1, "e", dead_letter="1"))
    assert full.end(letter.entry).words == ["ok"]
    full.now += 60_000
    assert len(full.expire().notices) == 6
    assert full.run("take_over", previous="f1", frontend="f2").code == "ok"
    assert full.unsubscribe(W1, release="1").words == ["ok"]
    assert full.run("purge").rows == [6]
    assert full.run("delete_partition").code == "ok"


def test_flags_say_so() -> None:
    """Exactly those operations have the flag `allow-oom` or write nothing."""
    assert {name for name, found in SCRIPTS.items() if "allow-oom" in found.flags} == GIVE_BACK
    assert {name for name, found in SCRIPTS.items() if "no-writes" in found.flags} == {
        name for name, found in SCRIPTS.items() if not found.writes
    }
    assert "publish" in PARTITIONED - GIVE_BACK
