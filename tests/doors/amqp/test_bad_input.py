"""Bad input: a clear condition for its sender, a bounded cost, and every other connection continues."""

import asyncio
import json
import random
import socket
import struct
import time
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest
from proton import ConnectionException, Described, Message, symbol, timestamp, ulong
from proton.reactor import Filter
from proton.utils import BlockingConnection, LinkDetached, SendException

from broker.model.commands import Publish
from broker.model.names import Jid
from broker.model.results import Published
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from frontends.amqp.protocol import sasl, types
from frontends.tools.servers.redis import RedisServer
from tests.admitting import ADMITTING
from tests.doors.amqp.conftest import NewLog
from tests.doors.amqp.raw import NULL, attach, frame, heard, opened, performative, plain, sasl_init
from tests.doors.amqp.served import AmqpFrontend, annotations, bodies, connected, consumer, producer, send, sql
from tests.doors.frontend import ALICE, BOB, PASSWORD

MEGABYTE = 1_048_576
SOUND = b"".join([b"AMQP\x03\x01\x00\x00", b"\x00\x00\x00\x10\x02\x01\x00\x00", b"AMQP\x00\x01\x00\x00"])


@pytest.fixture(autouse=True)
def others(frontend: AmqpFrontend, new_log: NewLog) -> Iterator[None]:
    """In each test another connection works, before it and after it, and no error of ours is logged."""
    log = new_log()
    with connected(frontend) as another:
        receiver, sender = consumer(another, log), producer(another, log)
        yield
        send(sender, "still here")
        assert bodies(receiver, 1) == ["still here"]
    errors = [json.loads(line) for line in frontend.log.splitlines() if '"level": "error"' in line]
    assert {each["event"] for each in errors} <= {"an item cannot be read", "a result cannot be read"}


def test_filters(alice: BlockingConnection, new_log: NewLog) -> None:
    """E17, E23: a malformed filter is an invalid field, an unknown one is not implemented; nothing is attached."""
    log = new_log(2)
    offset = "0" * 52
    name = symbol("amqp:event-streams-delivery-annotations-filter")
    for condition, filters in (
        ("invalid-field", annotations()),
        ("invalid-field", annotations(colour=1)),
        ("invalid-field", annotations(offset=symbol("17"))),
        ("invalid-field", annotations(offset=symbol(offset))),
        ("invalid-field", annotations(offset=symbol(">" + offset))),
        ("invalid-field", annotations(offset=5)),
        ("invalid-field", annotations(timestamp="now")),
        ("invalid-field", annotations(timestamp=timestamp(-1))),
        ("invalid-field", Filter({name: Described(name, "text")})),
        ("invalid-field", sql("d.event-streams-offset >")),
        ("invalid-field", sql(" AND ".join(["TRUE"] * 1_000))),
        ("invalid-field", sql("(" * 10_000)),
        ("not-implemented", sql("a.colour = 'red'")),
        ("not-implemented", Filter({symbol("x"): Described(symbol("apache.org:no-such-filter"), "x")})),
        ("not-implemented", Filter({symbol("x"): Described(ulong(0x999), "x")})),
        ("not-implemented", Filter({symbol("x"): "plain"})),  # type: ignore[dict-item]
    ):
        with pytest.raises(LinkDetached, match=f"amqp:{condition}"):
            consumer(alice, log, filters)


def test_addresses(alice: BlockingConnection, new_log: NewLog) -> None:
    """An unknown node, or no address at all, is refused by name; queues accept messages too."""
    queue = new_log(queueing=True)
    for making, address, condition in (
        (producer, "nowhere", "not-found"),
        (consumer, "nowhere", "not-found"),
        (producer, "nowhere/$info", "not-found"),
        (producer, "x" * 2000, "invalid-field"),
    ):
        with pytest.raises(LinkDetached, match=f"amqp:{condition}"):
            making(alice, address)
    send(producer(alice, queue), "into a queue")


def test_big_messages(alice: BlockingConnection, frontend: AmqpFrontend, new_log: NewLog) -> None:
    """A message over the node's limit is rejected; one over any node's ends the link; neither stays in memory."""
    log = new_log(pubsub__max_payload_size="100")
    sender = producer(alice, log)
    with pytest.raises(SendException):
        send(sender, "x" * 101)
    send(sender, "x" * 100)
    before = frontend.memory_bytes
    for _ in range(3):
        sender = producer(alice, log)
        with pytest.raises(LinkDetached, match="amqp:link:message-size-exceeded"):
            sender.send(Message(body=b"x" * 9 * MEGABYTE, inferred=True))
    assert frontend.memory_bytes - before < 24 * MEGABYTE


def test_what_is_no_json(alice: BlockingConnection, new_log: NewLog) -> None:
    """Issue 48.8: a body that is called JSON and is none is rejected as amqp:decode-error, and nothing of it is stored."""
    for log in (new_log(), new_log(queueing=True)):
        receiver, sender = consumer(alice, log), producer(alice, log)
        wrong: tuple[Any, ...] = (b"NaN", b"", b'"\xff"', "[1,]")
        for body, inferred in product(wrong, (True, False)):
            # Without `inferred` proton sends a value.
            delivery: Any = sender.link.send(Message(body=body, inferred=inferred, content_type="application/json"))
            alice.wait(partial(getattr, delivery, "settled"))
            condition = delivery.remote.condition
            assert condition is not None and condition.name == "amqp:decode-error"
            assert condition.description is not None and "is not JSON" in condition.description
        send(sender, "after it")
        assert bodies(receiver, 1) == ["after it"]


def test_too_fast(alice: BlockingConnection, new_log: NewLog) -> None:
    """stanzaq#publish_rate: a message that comes too soon is rejected with a text that tells when to go on."""
    sender = producer(alice, new_log(stanzaq__publish_rate="1/h"))
    send(sender, "x")
    with pytest.raises(SendException):
        send(sender, "y")


def test_what_nobody_can_read(redis: RedisServer, alice: BlockingConnection, new_log: NewLog) -> None:
    """An entry that is no envelope is skipped, with and without a filter on its content; later ones arrive."""
    log = new_log()
    asyncio.run(_publish(redis.url, log, b"garbage"))
    send(producer(alice, log), "after it")
    for begin in (annotations(offset=symbol("@earliest")), sql("m.x-opt-a IS NULL")):
        assert bodies(consumer(alice, log, begin), 1) == ["after it"]


async def _publish(url: str, node: str, envelope: bytes) -> None:
    core = RedisCore(CommandSettings(**ADMITTING, redis_url=url), None)
    try:
        assert isinstance(await core.ask(Publish(node, Jid(ALICE), None, envelope, len(envelope))), Published)
    finally:
        await core.stop()


def test_never_ending_deliveries(frontend: AmqpFrontend, new_log: NewLog) -> None:
    """A delivery without an end ends its link; many unfinished ones end theirs too, and memory stays bounded."""
    log = new_log()
    before = frontend.memory_bytes
    line = opened(frontend)
    for handle in range(40):
        line.sendall(attach(f"l{handle}", handle, log))
    time.sleep(0.5)
    line.settimeout(0.2)
    for _ in range(20):
        for handle in range(40):
            more = [b"\x52%c" % handle, b"\x52%c" % handle, b"\xa0\x01t", b"\x43", b"\x42", b"\x41"]
            line.sendall(frame(0x14, *more, payload=b"x" * 30_000))
        time.sleep(0.02)
    line.settimeout(5)
    found = line.recv(65_536)
    line.close()
    assert b"amqp:resource-limit-exceeded" in found or b"amqp:link:message-size-exceeded" in found
    assert frontend.memory_bytes - before < 16 * MEGABYTE


def test_garbage_for_messages(frontend: AmqpFrontend, new_log: NewLog) -> None:
    """Bytes that are no message are rejected with a decode error, one by one, and the link continues."""
    log = new_log()
    line = opened(frontend)
    line.sendall(attach("l", 0, log))
    time.sleep(0.3)
    deep = b"\x00\x53\x77" + b"\x00" * 10_000 + b"\x40"
    bomb = types.section(0x77, b"\xd0" + struct.pack(">II", 4, 2**31))
    zeros = types.section(0x77, b"\xf0" + struct.pack(">II", 5, 2**31) + b"\x40")
    wrong = [b"\xff" * 50, b"\x00", deep, bomb, zeros, b"\x00\x53\x75\xa0\xff", types.section(0x71, b"\x40"), b""]
    wrong += [
        types.section(0x75, types.string("no binary")),
        types.section(0x75, b"\xa0\x00") + types.section(0x70, b"\x45"),
    ]
    for number, payload in enumerate(wrong):
        line.sendall(
            frame(0x14, b"\x43", b"\x52%c" % number, b"\xa0\x01%c" % number, b"\x43", b"\x42", payload=payload)
        )
    found, deadline = b"", time.monotonic() + 10
    while found.count(b"amqp:decode-error") < len(wrong) and time.monotonic() < deadline:
        found += line.recv(65_536)
    line.close()
    assert found.count(b"amqp:decode-error") == len(wrong)


def test_greed(alice: BlockingConnection, frontend: AmqpFrontend, new_log: NewLog) -> None:
    """A client that grants 2^31 credit and reads nothing gets what its sockets take, and costs no more memory."""
    log = new_log()
    sender = producer(alice, log)
    for _ in range(150):
        sender.link.send(Message(body=b"x" * 200_000, inferred=True))
    sender.send(Message(body=b"last", inferred=True))
    before = frontend.memory_bytes
    line = opened(frontend)
    begin = types.write_map([types.symbol("event-streams-offset"), types.symbol("@earliest")])
    described = b"\x00" + types.symbol("amqp:event-streams-delivery-annotations-filter") + begin
    source = types.write_list([types.string(log), *[b"\x40"] * 6, types.write_map([types.symbol("f"), described])])
    ends = [types.section(0x28, source), types.section(0x29, types.write_list([b"\x40"]))]
    line.sendall(frame(0x12, types.string("l"), b"\x43", b"\x41", b"\x50\x01", b"\x40", *ends))
    most = b"\x70\x7f\xff\xff\xff"
    line.sendall(frame(0x13, b"\x43", most, b"\x43", most, b"\x43", b"\x43", most))
    time.sleep(2)
    assert frontend.memory_bytes - before < 16 * MEGABYTE
    line.close()


def test_duplicate_names(frontend: AmqpFrontend, new_log: NewLog) -> None:
    """Two links of one name end their connection."""
    log = new_log()
    line = opened(frontend)
    line.sendall(attach("l", 0, log) + attach("l", 1, log))
    assert b"already attached" in heard(line)


def test_many_links(frontend: AmqpFrontend, new_log: NewLog) -> None:
    """E25: links beyond a connection's limit are refused; the others continue."""
    log = new_log()
    line = opened(frontend)
    line.sendall(b"".join(attach(f"l{number}", number, log) for number in range(256)))
    line.sendall(attach("one more", 256, log))
    found, deadline = b"", time.monotonic() + 10
    while b"amqp:resource-limit-exceeded" not in found and time.monotonic() < deadline:
        found += line.recv(65_536)
    line.close()
    assert b"a connection has at most 256 links" in found


def test_noise(frontend: AmqpFrontend) -> None:
    """Random bytes at any point end their connection; so does a frame that is too long."""
    source = random.Random(254)
    for number in range(60):
        line = frontend.raw()
        line.settimeout(5)
        before = (b"", sasl.SASL_HEADER, plain() + sasl.AMQP_HEADER, SOUND)[number % 4]
        try:
            line.sendall(before + source.randbytes(source.choice((8, 100, 5000))))
            line.shutdown(socket.SHUT_WR)
        except OSError:
            continue
        heard(line)
    line = opened(frontend)
    line.sendall(struct.pack(">IBBH", 2**31 - 1, 2, 0, 0) + b"x" * 200_000)
    assert b"amqp:" in heard(line)


def test_wrong_passwords(frontend: AmqpFrontend) -> None:
    """A wrong password ends the connection, a thousand times over; a right one works meanwhile."""
    lines = []
    with connected(frontend):
        # Who was here lately is known, however many guesses come from the same address.
        pass
    for _ in range(10):
        for _ in range(100):
            line = frontend.raw()
            line.sendall(plain(password="wrong"))
            lines.append(line)
        with connected(frontend):
            pass
        # Wrong, or too many at once to be checked.
        assert {heard(line)[-2:] for line in lines} <= {b"\x50\x01", b"\x50\x04"}
        lines.clear()
    said = frontend.raw()
    said.sendall(plain(password="wrong"))
    assert heard(said)[-2:] in {b"\x50\x01", b"\x50\x04"}


PLAIN, RIGHT = types.symbol("PLAIN"), types.binary(f"\0{ALICE}\0{PASSWORD}".encode())
BELIEVED = performative(0x44, b"\x50\x00")


@pytest.mark.parametrize(
    "said",
    [
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x02\x01\x00\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        plain("nobody@example.org"),
        plain(ALICE, ""),
        plain().replace(b"PLAIN", b"PLANE"),
        plain().replace(b"\0alice", b"aalice"),
        # RFC 4616 §2: alice does not act as another.
        sasl_init(PLAIN, types.binary(f"{BOB}\0{ALICE}\0{PASSWORD}".encode())),
        sasl_init(PLAIN, NULL),
        sasl_init(PLAIN, types.binary(b"\0\xff\0x")),
        sasl_init(NULL, RIGHT),
        # Part 5 §5.3: one init, in a frame of SASL, and nothing else.
        sasl_init(PLAIN, RIGHT, more=b"more"),
        sasl_init(PLAIN, RIGHT, kind=0),
        sasl_init(PLAIN, RIGHT, offset=0),
        sasl_init(PLAIN, RIGHT, code=0x43),
        sasl.SASL_HEADER * 2,
        sasl.SASL_HEADER + b"\x7f\xff\xff\xff\x02\x01\x00\x00",
    ],
)
def test_unknown_peers(frontend: AmqpFrontend, said: bytes) -> None:
    """A client without credentials is told which mechanisms there are, and disconnected; ANONYMOUS works only if configured."""
    line = frontend.raw()
    line.sendall(said)
    found = heard(line)
    assert not found or found.startswith(sasl.SASL_HEADER)
    assert b"ANONYMOUS" not in found and BELIEVED not in found


def test_too_many_connections(redis: RedisServer) -> None:
    """Connections beyond the limit are closed at once; the others continue."""
    limits = {"AMQP_CONNECTIONS": "2", "AMQP_ACCOUNT_CONNECTIONS": "2"}
    with AmqpFrontend(redis.url, **limits) as small, connected(small), connected(small):
        line = small.raw()
        assert heard(line) == b""


def test_places(redis: RedisServer) -> None:
    """One account has a quarter of the places, and so have all that do not log in: the oldest of them makes room."""
    with AmqpFrontend(redis.url, AMQP_CONNECTIONS="8") as small, connected(small), connected(small):
        with pytest.raises(ConnectionException):
            small.connect()
        first, *silent = [small.raw() for _ in range(9)]
        assert heard(first) == b""
        with connected(small, BOB):
            pass
        assert heard(silent[0]) == b""
        told = small.probe("/metrics")[1]
        assert 'stanzaq_connections_refused_total{reason="account"} 1.0' in told
        assert 'stanzaq_connections_refused_total{reason="displaced"}' in told
        for line in silent:
            line.close()


def test_guesses_are_slowed(redis: RedisServer) -> None:
    """Too many wrong passwords of one account from one address are told to come later; another account goes on."""
    with AmqpFrontend(redis.url) as frontend:
        said = []
        for _ in range(6):
            line = frontend.raw()
            line.sendall(plain(password="wrong"))
            said.append(heard(line))
        assert [each.endswith(b"\x50\x01") for each in said] == [True] * 5 + [False]
        assert said[-1].endswith(b"\x50\x04")
        with connected(frontend, BOB):
            pass
        assert (
            '"login failed"' in frontend.log and 'failed_logins_total{door="amqp"} 5.0' in frontend.probe("/metrics")[1]
        )
