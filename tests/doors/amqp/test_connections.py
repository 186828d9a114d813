"""Connections of a door in this process: what a peer makes one keep, and for how long."""

import asyncio
import gc
import secrets
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from proton import Message

from broker import codec
from broker.model.commands import Declare, Publish, Stats
from broker.model.items.items import Envelope
from broker.model.names import Jid
from broker.model.results import Counted, Declared, Published
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from frontends.amqp import connection as connections
from frontends.amqp.auth.identity import Ends, Identity, never
from frontends.amqp.auth.shared_keys import Keys
from frontends.amqp.connection import AmqpConnection
from frontends.amqp.constants import EPOCH, GROUP, LOCK, PARTITION
from frontends.amqp.event_hubs.constants import HUB, MANAGEMENT, TOKEN_TYPE, TOKENS
from frontends.amqp.links import queue_consumer
from frontends.amqp.protocol import sasl, types
from frontends.amqp.protocol.engine import CONTAINER
from frontends.amqp.protocol.grammar import Code, Frames, performative
from frontends.amqp.protocol.links import Outgoing
from frontends.amqp.server import AmqpServer
from frontends.logins.connection_limits import ConnectionLimits
from frontends.logins.failed_logins import FailedLogins
from frontends.logins.passwords import Passwords
from frontends.tools.servers.redis import RedisServer
from tests.admitting import ADMITTING
from tests.doors.amqp.event_hubs import KEYS, signed
from tests.doors.amqp.raw import (
    BEGIN,
    NULL,
    OPEN,
    TRUE,
    ZERO,
    attach,
    frame,
    framed,
    plain,
    receiver,
    sasl_init,
    source,
    target,
    transfer,
    uint,
)
from tests.doors.amqp.served import NO_TOKENS
from tests.doors.frontend import ALICE
from tests.waiting import PATIENCE_SECONDS

OWNER = Jid(ALICE)
HEAD = sasl.AMQP_HEADER + OPEN + BEGIN
MOST = uint(2**31 - 1)
_CREDIT = 6
"""The index of the credit in a flow."""
ACCEPTED, WINDOW = b"\x00\x53\x24", b"\x52\x0a"


class Door:
    """A core and an AMQP server, whose sockets keep few bytes that nobody reads."""

    def __init__(self, core: RedisCore, identity: Identity) -> None:
        """Listen on a free port."""
        self.core = core
        self.server = AmqpServer(identity, "127.0.0.1", 0, context=None, connection_limits=ConnectionLimits(10))
        for size in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self.server._socket.setsockopt(socket.SOL_SOCKET, size, 4_096)
        self.server.start(core)
        self._lines: list[socket.socket] = []

    @property
    def connections(self) -> list[AmqpConnection]:
        """Return its connections."""
        assert self.server._shared
        return [each for each in self.server._shared.connections if isinstance(each, AmqpConnection)]

    async def connected(self) -> tuple[socket.socket, AmqpConnection]:
        """Connect a plain socket, and return it with its connection."""
        assert not self.connections
        line = socket.socket()
        self._lines.append(line)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        line.settimeout(0.0)
        await asyncio.get_running_loop().sock_connect(line, ("127.0.0.1", self.server.port))
        await until(lambda: bool(self.connections))
        return line, self.connections[0]

    async def stop(self) -> None:
        """Close all."""
        for line in self._lines:
            line.close()
        await self.server.drain(0)
        await self.core.stop()


async def until(holds: Callable[[], bool]) -> None:
    """Wait until this is true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110  (whoever makes it true knows no event of ours)
            await asyncio.sleep(0.01)


async def send(line: socket.socket, said: bytes) -> None:
    """Send bytes."""
    await asyncio.get_running_loop().sock_sendall(line, said)


async def heard(line: socket.socket, sign: bytes) -> None:
    """Read until these bytes have come."""
    found = b""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sign not in found:
            piece = await asyncio.get_running_loop().sock_recv(line, 65_536)
            assert piece, found
            found += piece


@pytest.fixture
async def core(redis: RedisServer) -> RedisCore:
    """Provide a core."""
    core = RedisCore(
        CommandSettings(**ADMITTING, redis_url=redis.url, node_quota=100_000, partition_quota=1_000_000), None, "amqp"
    )
    await core.start()
    return core


@pytest.fixture
async def door(core: RedisCore) -> AsyncIterator[Door]:
    """Provide a door where nobody has to authenticate."""
    door = Door(core, Identity(Passwords("", FailedLogins("test")), NO_TOKENS, OWNER, Keys(""), FailedLogins("test")))
    yield door
    await door.stop()


@pytest.fixture
async def hubs(core: RedisCore) -> AsyncIterator[Door]:
    """Provide a door for clients of Event Hubs."""
    door = Door(core, Identity(Passwords("", FailedLogins("test")), NO_TOKENS, None, Keys(KEYS), FailedLogins("test")))
    yield door
    await door.stop()


async def queue(core: RedisCore, count: int, size: int) -> str:
    """Create a queue with so many items of so many bytes."""
    name = f"q{secrets.token_hex(8)}"
    assert await core.ask(Declare(name, OWNER, {})) == Declared(name)
    for _ in range(count):
        assert isinstance(
            await core.ask(Publish(name, OWNER, None, codec.pack(Envelope(bytes(size))), size)), Published
        )
    return name


async def log(core: RedisCore) -> str:
    """Create a log."""
    name = f"log{secrets.token_hex(8)}"
    options = {"{urn:xmpp:pubsub:queueing:0}enabled": ("0",), "stanzaq#retention_items": ("100",)}
    assert await core.ask(Declare(name, OWNER, options)) == Declared(name)
    return name


def credit(handle: int, number: int, *more: bytes) -> bytes:
    """Write a flow that grants credit; `more` are the fields after it."""
    return frame(0x13, ZERO, MOST, ZERO, MOST, uint(handle), ZERO, uint(number), *more)


async def _is_silent(door: Door, line: socket.socket) -> None:
    (connection,) = door.connections
    assert connection._engine
    connection._engine._transport.idle_timeout = 0.1
    # proton counts from the next frame on.
    await send(line, framed(b""))


async def _is_wrong(_door: Door, line: socket.socket) -> None:
    await send(line, frame(0x99))


async def _closes(_door: Door, line: socket.socket) -> None:
    await send(line, frame(0x18))


async def _is_left(door: Door, _line: socket.socket) -> None:
    door.connections[0].end()


Happening = Callable[[Door, socket.socket], Awaitable[None]]


@pytest.mark.parametrize("happens", [_is_silent, _is_wrong, _closes, _is_left])
async def test_reads_no_more(door: Door, monkeypatch: pytest.MonkeyPatch, happens: Happening) -> None:
    """A consumer that reads no more holds its items only until its time-out or the end of its connection (part 2 §2.4.5)."""
    monkeypatch.setattr(connections, "_WRITE_BYTES", 4_096)
    monkeypatch.setattr(connections, "_CLOSING_SECONDS", 0.1)
    monkeypatch.setattr(connections, "_LONGEST_TICK_SECONDS", 0.1)
    name = await queue(door.core, 10, 50_000)
    line, connection = await door.connected()
    await send(line, HEAD + receiver("r", 0, name))
    await until(lambda: bool(connection._parts))
    await send(line, credit(0, 100))
    await until(lambda: connection._full)
    assert await _held(door.core, name)
    await happens(door, line)
    await until(lambda: not door.connections)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await _held(door.core, name):  # noqa: ASYNC110  (nobody tells when an item is free)
            await asyncio.sleep(0.01)


async def _held(core: RedisCore, name: str) -> int:
    found = await core.ask(Stats(name, OWNER))
    assert isinstance(found, Counted), found
    return found.in_flight


async def test_drains_into_a_full_connection(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Part 2 §2.6.7: a drain ends after all items, also when the peer reads slower than they come."""
    monkeypatch.setattr(connections, "_WRITE_BYTES", 4_096)
    monkeypatch.setattr(queue_consumer, "_UNSENT_BYTES", 50_000)
    name = await queue(door.core, 20, 25_000)
    line, connection = await door.connected()
    await send(line, HEAD + receiver("r", 0, name))
    await until(lambda: bool(connection._parts))
    await send(line, credit(0, 30, NULL, TRUE))
    (link,) = connection._parts
    assert isinstance(link, Outgoing)
    await until(lambda: link.unsent > 50_000)
    # A drain that ended too early would end now.
    await asyncio.sleep(0.2)
    frames, found, drained = Frames(2**31), bytearray(), False
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not drained:
            piece = await asyncio.get_running_loop().sock_recv(line, 65_536)
            assert piece
            for each in frames.complete_frames(piece if found else piece.removeprefix(sasl.AMQP_HEADER)):
                said = performative(each)
                drained = drained or bool(said and said.code is Code.FLOW and said.fields[_CREDIT] == 0)
            found += piece
    assert found.count(types.symbol(LOCK)) == 20


def _attached(name: str, end: bytes) -> bytes:
    return frame(0x12, types.string(name), ZERO, TRUE, NULL, NULL, end, target())


def _owner(name: str, handle: int, node: str, epoch: int) -> bytes:
    told = [types.symbol(GROUP), types.string("g"), types.symbol(EPOCH), b"\x55%c" % epoch]
    ends = source(types.string(node)), target()
    return frame(0x12, types.string(name), uint(handle), TRUE, NULL, NULL, *ends, *[NULL] * 6, types.write_map(told))


def _attached_and_detached(name: str, end: bytes) -> bytes:
    return _attached(name, end) + frame(0x16, ZERO, TRUE)


async def test_detached_at_once(door: Door) -> None:
    """Guarantee 6: of a link that is detached before its attach is answered, nothing stays."""
    line, connection = await door.connected()
    dynamic = source(NULL, NULL, NULL, NULL, TRUE)
    await send(line, HEAD + b"".join(_attached_and_detached(str(number), dynamic) for number in range(5)))
    # Its attach is the last to be answered.
    await send(line, _attached("last", dynamic))
    await until(lambda: any(link.alive for link in connection._parts))
    assert connection._attaching
    assert (len(connection._parts), len(connection._attaching.answers)) == (1, 1)


async def test_detached_at_once_by_an_sdk(hubs: Door) -> None:
    """Guarantee 6: likewise of the links for tokens of Event Hubs."""
    line, connection = await hubs.connected()
    tokens = source(types.string("$cbs"))
    await send(line, sasl_init(types.symbol("ANONYMOUS"), NULL) + HEAD)
    await send(line, b"".join(_attached_and_detached(str(number), tokens) for number in range(5)))
    await send(line, _attached("last", tokens))
    await until(lambda: any(link.alive for link in connection._parts))
    assert connection._profile
    assert (len(connection._parts), len(connection._profile.attaching._consumers)) == (1, 1)


def kept() -> Counter[str]:
    """Count the objects of the door."""
    return Counter(
        type(each).__name__ for each in gc.get_objects() if str(type(each).__module__).startswith("frontends.amqp")
    )


async def _opens(_door: Door, line: socket.socket) -> None:
    await send(line, HEAD)
    await heard(line, CONTAINER.encode())


async def _breaks_the_protocol(_door: Door, line: socket.socket) -> None:
    await send(line, HEAD + frame(0x99))
    await heard(line, b"amqp:not-implemented")


async def _publishes(door: Door, line: socket.socket) -> None:
    await send(line, HEAD + attach("l", 0, await queue(door.core, 0, 0)))
    await heard(line, uint(1_000))
    await send(line, transfer(0, 0, b"t"))
    await heard(line, ACCEPTED)


async def _consumes(door: Door, line: socket.socket) -> None:
    await send(line, HEAD + receiver("l", 0, await queue(door.core, 5, 10)) + credit(0, 3))
    await heard(line, LOCK.encode())


async def _reads(door: Door, line: socket.socket) -> None:
    await send(line, HEAD + receiver("l", 0, await log(door.core)) + credit(0, 3))
    await heard(line, PARTITION.encode())


async def _names_no_node(_door: Door, line: socket.socket) -> None:
    await send(line, HEAD + attach("l", 0, "nowhere") + receiver("m", 1, " " * 2_000))
    await heard(line, b"amqp:not-found")


async def _is_not_the_owner(door: Door, line: socket.socket) -> None:
    name = await log(door.core)
    await send(line, HEAD + _owner("l", 0, name, epoch=5))
    await heard(line, EPOCH.encode())
    await send(line, _owner("m", 1, name, epoch=4))
    await heard(line, b"amqp:resource-locked")


async def _manages(_door: Door, line: socket.socket) -> None:
    await send(line, sasl_init(types.symbol("ANONYMOUS"), NULL) + HEAD)
    await send(line, attach("a", 0, TOKENS) + receiver("b", 1, TOKENS) + credit(1, 9))
    proof = {"operation": "put-token", "type": TOKEN_TYPE}
    await heard(line, WINDOW)
    token = signed("nowhere", 60).removeprefix("SharedAccessSignature=")
    await send(line, transfer(0, 0, b"t", message=Message(body=token, properties=proof).encode()))
    await heard(line, b"Accepted")
    await send(line, attach("c", 2, MANAGEMENT) + receiver("d", 3, MANAGEMENT) + credit(3, 9))
    asked = {"operation": "READ", "name": "nowhere", "type": HUB}
    await heard(line, WINDOW)
    await send(line, transfer(2, 1, b"t", message=Message(properties=asked).encode()))
    await heard(line, b"status-code")


@pytest.mark.parametrize(
    "happens", [_opens, _breaks_the_protocol, _publishes, _consumes, _reads, _names_no_node, _is_not_the_owner]
)
async def test_nothing_stays(door: Door, happens: Happening) -> None:
    """Guarantee 6: once a connection has ended, nothing of it stays, not even until Python collects garbage."""
    await _leaves_nothing(door, happens)


async def test_nothing_stays_of_an_sdk(hubs: Door) -> None:
    """Guarantee 6: likewise of a client of Event Hubs, one of whose requests is refused."""
    await _leaves_nothing(hubs, _manages)


async def _leaves_nothing(door: Door, happens: Happening) -> None:
    gc.collect()
    gc.disable()
    try:
        before = kept()
        line = (await door.connected())[0]
        await happens(door, line)
        line.close()
        await until(lambda: kept() <= before)
    finally:
        gc.enable()


class _Slow(Identity):
    """Lets a peer wait for the check of its password, which is always right."""

    def __init__(self) -> None:
        """Check nothing yet."""
        super().__init__(Passwords("", FailedLogins("test")), NO_TOKENS, None, Keys(""), FailedLogins("test"))
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()

    async def of(self, _init: sasl.Init, _certified: Jid | None, _address: str) -> tuple[Jid, Ends]:
        """Wait until the test says so."""
        self.asked.set()
        await self.answer.wait()
        return OWNER, never


async def test_reads_nothing_while_it_checks_a_password(core: RedisCore) -> None:
    """Guarantee 6: what a peer sends while its password is checked waits outside; then it is read."""
    identity = _Slow()
    door = Door(core, identity)
    try:
        line, connection = await door.connected()
        await send(line, plain())
        await identity.asked.wait()
        # Empty frames with long heads.
        sending = asyncio.ensure_future(send(line, HEAD + framed(bytes(1_012), offset=255) * 4_000))
        await until(lambda: sending.done() or not connection._transport.is_reading())
        assert len(connection._buffer) < 1_000_000
        identity.answer.set()
        await heard(line, CONTAINER.encode())
        await sending
    finally:
        await door.stop()
