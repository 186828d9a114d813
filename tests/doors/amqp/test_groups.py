"""Consumer groups on the wire: who reads a partition for a group, and who takes it over."""

import subprocess
import sys
import time
from typing import Any
from zlib import crc32

import pytest
from proton import Timeout, symbol
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached
from redis import Redis

from frontends.tools.servers.redis import RedisServer
from tests.doors.amqp.conftest import NewLog
from tests.doors.amqp.served import (
    AmqpFrontend,
    With,
    annotations,
    arrived,
    bodies,
    connected,
    consumer,
    marks,
    one,
    producer,
    send,
    told,
)

_DYING = """
import os, sys
from proton import symbol
from tests.doors.amqp.served import *
port, log = sys.argv[1:]
connection = BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=20, user=ALICE, password=PASSWORD,
    allowed_mechs="PLAIN", allow_insecure_mechs=True)
consumer(connection, log, With(consumer_group="g", epoch=7))
os._exit(0)
"""
"""A consumer whose process ends without closing."""


def owner(connection: BlockingConnection, log: str, group: str = "g", **wanted: Any) -> BlockingReceiver:  # noqa: ANN401  (of any type)
    """Attach as the owner of a group's reading."""
    return consumer(connection, log, [With(consumer_group=group, **wanted), annotations(offset=symbol("@earliest"))])


def test_epochs(alice: BlockingConnection, new_log: NewLog) -> None:
    """E26 to E29, EX13 to EX15: one reader for a group; a greater epoch takes over; an orderly end resets the epoch."""
    log = new_log()
    send(producer(alice, log), "a")
    first = owner(alice, log, epoch=7)
    assert told(first.link) == {
        "event-streams-partition": "0",
        "event-streams-consumer-group": "g",
        "event-streams-epoch": 7,
    }
    assert bodies(first, 1) == ["a"]
    for epoch in (None, 0, 6, 7):
        wanted: dict[str, Any] = {} if epoch is None else {"epoch": epoch}
        with pytest.raises(LinkDetached, match="amqp:resource-locked"):
            owner(alice, log, **wanted)
    assert told(owner(alice, log, group="other").link)["event-streams-epoch"] == 1
    second = owner(alice, log, epoch=8)
    with pytest.raises(LinkDetached, match="amqp:link:stolen"):
        first.connection.wait(lambda: False, timeout=20)
    assert bodies(second, 1) == ["a"]
    second.close()  # type: ignore[no-untyped-call]
    third = owner(alice, log, epoch=0)
    assert told(third.link)["event-streams-epoch"] == 0


def test_short_leases(redis: RedisServer, alice: BlockingConnection, new_log: NewLog) -> None:
    """EX16: an owner renews its ownership in time, however short the lock time is."""
    log = new_log(stanzaq__lock_seconds="1")
    owner(alice, log)
    with Redis.from_url(redis.url, decode_responses=True) as client:
        (found,) = client.scan_iter(f"*{log}@*:reader_owners")

        def ends() -> int:
            return int(str(client.hget(found, "g")).split(" ")[2])

        first = ends()
        while ends() <= first + 2_000:
            with pytest.raises(Timeout):
                alice.wait(lambda: False, timeout=0.05)


def test_bad_requests(alice: BlockingConnection, new_log: NewLog) -> None:
    """E26, EX12: an epoch is a long from 0 on, of a valid group."""
    log = new_log(stanzaq__groups="one two")
    for condition, wanted in (
        ("amqp:not-found", With(consumer_group="three")),
        ("amqp:invalid-field", With(consumer_group="one", epoch=-1)),
        ("amqp:invalid-field", With(consumer_group="one", epoch="x")),
        ("amqp:invalid-field", With(epoch=1)),
        ("amqp:invalid-field", With(consumer_group="a b")),
        ("amqp:invalid-field", With(partition=7)),
    ):
        with pytest.raises(LinkDetached, match=condition):
            consumer(alice, log, wanted)
    assert (
        told(consumer(alice, log, With(consumer_group="one", epoch=2**63 - 1)).link)["event-streams-epoch"] == 2**63 - 1
    )


def test_free_partitions(alice: BlockingConnection, new_log: NewLog) -> None:
    """E10, EX19: a link without a partition gets a free one, and is refused when there is none."""
    log = new_log(3)
    given = {told(owner(alice, log).link)["event-streams-partition"] for _ in range(3)}
    assert given == {"0", "1", "2"}
    with pytest.raises(LinkDetached, match="amqp:resource-locked"):
        owner(alice, log)


def test_over_two_frontends(redis: RedisServer, frontend: AmqpFrontend, new_log: NewLog) -> None:
    """E28, EX11, EX16: it holds across frontends; the replaced link learns of it soon and gets nothing more meanwhile."""
    log = new_log()
    with AmqpFrontend(redis.url) as other, connected(frontend) as here, connected(other) as there:
        first = owner(here, log, epoch=1)
        second = owner(there, log, epoch=2)
        began = time.monotonic()
        send(producer(there, log), "a")
        assert bodies(second, 1) == ["a"]
        with pytest.raises(LinkDetached, match="amqp:link:stolen"):
            here.wait(lambda: arrived(first) > 0, timeout=20)
        assert time.monotonic() - began < 10 and arrived(first) == 0


def test_lost_connection(alice: BlockingConnection, frontend: AmqpFrontend, new_log: NewLog) -> None:
    """EX11, EX15: a broken connection frees the slot and keeps the epoch."""
    log = new_log()
    subprocess.run([sys.executable, "-c", _DYING, str(frontend.port), log], check=True, timeout=30)
    deadline, epoch = time.monotonic() + 20, None
    while epoch is None:
        try:
            epoch = told(owner(alice, log).link)["event-streams-epoch"]
        except LinkDetached:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert epoch == 8


def test_takes_nothing_it_cannot_read(alice: BlockingConnection, new_log: NewLog) -> None:
    """E10, E28: a link that cannot start in the free partition, because its offset is of another one, takes nothing."""
    log, name = new_log(2), "x"
    here = crc32(name.encode()) % 2
    mine, free = symbol(str(here)), symbol(str(1 - here))
    send(producer(alice, log), "a", partition=mine)
    first = owner(alice, log, partition=mine)
    offset = marks(one(first))["offset"]
    with pytest.raises(LinkDetached, match="amqp:invalid-field"):
        consumer(alice, log, [With(consumer_group="g"), annotations(offset=offset)], name=name)
    assert told(owner(alice, log, partition=free).link)["event-streams-partition"] == free
