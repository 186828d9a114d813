"""The audit of what comes over HTTP: from which address, and what the door alone cannot tell."""

import json

import redis as redis_client

from broker import codec, keys
from broker.model.audit import NODE
from broker.model.names import Partition
from frontends.tools.servers.redis import RedisServer
from tests.doors.frontend import ALICE, BOB
from tests.doors.rest.served import RestFrontend, client


def test_from_where(redis: RedisServer) -> None:
    """An entry has the client's address, behind a trusted proxy that of its sender; a refused one has the reason."""
    settings = {"AUDIT": "true", "ADMINS": ALICE, "TRUSTED_PROXIES": "127.0.0.1"}
    with RestFrontend(redis.url, **settings) as frontend, client(frontend) as alice, client(frontend, BOB) as bob:
        queue = alice.post("/queues").headers["Location"]
        bob.delete(queue, headers={"Forwarded": "for=192.0.2.7"})
        assert alice.delete(queue).is_success
        with redis_client.Redis.from_url(redis.url) as found:
            incarnation = found.hget(keys.of_node("node", NODE), "incarnation")
            assert isinstance(incarnation, bytes)
            log = found.xrange(keys.of_partition("log", Partition(NODE, incarnation.decode())))
            found.delete(*found.scan_iter(f"*{NODE}*"))
            found.zrem(keys.of_service("all_nodes"), NODE)
        made, refused, deleted = (json.loads(codec.unpack(entry[b"body"]).body) for _, entry in log)
    assert [each["command"] for each in (made, refused, deleted)] == ["Declare", "Delete", "Delete"]
    assert (made["who"].partition("/")[0], made["door"], made["address"]) == (ALICE, "rest", "127.0.0.1")
    assert (refused["who"].partition("/")[0], refused["address"], refused["problem"]) == (BOB, "192.0.2.7", "forbidden")
