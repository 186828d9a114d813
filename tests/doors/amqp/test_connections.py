"""Connections of a door in this process: what a peer makes one keep, and for how long."""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from broker import codec
from broker.model.commands import Declare, Publish, Stats
from broker.model.items import Envelope
from broker.model.names import Jid
from broker.model.results import Counted, Declared, Published
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from frontends.amqp import connection as connections
from frontends.amqp.auth.identity import Identity
from frontends.amqp.auth.shared_keys import Keys
from frontends.amqp.connection import Connection
from frontends.amqp.protocol import sasl, types
from frontends.amqp.server import AmqpServer
from frontends.passwords import Passwords
from frontends.tools.servers.redis import RedisServer
from tests.doors.amqp.hubs import KEYS
from tests.doors.amqp.raw import BEGIN, NULL, OPEN, TRUE, ZERO, frame, framed, receiver, sasl_init, source, target, uint
from tests.doors.frontend import ALICE
from tests.waiting import PATIENCE_SECONDS

OWNER = Jid(ALICE)
HEAD = sasl.AMQP_HEADER + OPEN + BEGIN
MOST = uint(2**31 - 1)


class Door:
    """A core and an AMQP server, whose sockets take few bytes that nobody reads."""

    def __init__(self, core: RedisCore, identity: Identity) -> None:
        """Listen on a free port."""
        self.core = core
        self.server = AmqpServer(identity, "127.0.0.1", 0, context=None, connections=10)
        self.server._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        self.server.start(core)
        self._lines: list[socket.socket] = []

    @property
    def connections(self) -> list[Connection]:
        """Return its connections."""
        assert self.server._shared
        return [each for each in self.server._shared.connections if isinstance(each, Connection)]

    async def connected(self) -> tuple[socket.socket, Connection]:
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


@pytest.fixture
async def core(redis: RedisServer) -> RedisCore:
    """Provide a core."""
    core = RedisCore(CommandSettings(redis_url=redis.url, node_quota=100_000), None, "amqp")
    await core.start()
    return core


@pytest.fixture
async def door(core: RedisCore) -> AsyncIterator[Door]:
    """Provide a door where nobody has to authenticate."""
    door = Door(core, Identity(Passwords(""), OWNER, Keys("")))
    yield door
    await door.stop()


@pytest.fixture
async def hubs(core: RedisCore) -> AsyncIterator[Door]:
    """Provide a door for clients of Event Hubs."""
    door = Door(core, Identity(Passwords(""), None, Keys(KEYS)))
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


def credit(handle: int, number: int) -> bytes:
    """Write a flow that grants credit."""
    return frame(0x13, ZERO, MOST, ZERO, MOST, uint(handle), ZERO, uint(number))


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


@pytest.mark.parametrize("happens", [_is_silent, _is_wrong, _closes, _is_left])
async def test_reads_no_more(
    door: Door, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Door, socket.socket], Awaitable[None]]
) -> None:
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


def _attached(name: str, end: bytes) -> bytes:
    return frame(0x12, types.string(name), ZERO, TRUE, NULL, NULL, end, target())


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
