"""More connections than the service may have, by the server alone: the application behind it does not matter."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from frontends.logins.connection_limits import ConnectionLimits
from frontends.rest.errors import write_problem
from frontends.rest.http.connection import CONNECTION, crowded
from frontends.rest.http.server import HttpServer
from frontends.tools.servers.redis import RedisServer
from tests.doors.frontend import BOB
from tests.doors.rest.served import RestFrontend, client, problem
from tests.waiting import PATIENCE_SECONDS

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_ASKED = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def _answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read one answer: its head and its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    size = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return head, await reader.readexactly(int(size.removeprefix(b"content-length:")))


async def claiming(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a request of the account that it names, without any check."""
    account = dict(scope["headers"]).get(b"authorization", b"").decode()
    connection = scope["state"][CONNECTION]
    why = connection.claim(account, connection.address) if account else ""
    answer = Response(write_problem(crowded(why)), crowded(why).status) if why else Response("served")
    await answer(scope, receive, send)


class Served:
    """A server that admits eight, and connections to it."""

    def __init__(self, **limits: int) -> None:
        """Start."""
        self.connection_limits = ConnectionLimits(8, **limits)
        self.counted = Counter[str]()
        self.connection_limits.count = lambda why: self.counted.update([why])
        how = {"slow_seconds": 20, "header_bytes": 4_096, "keep_alive_seconds": 20, "drain_seconds": 1}
        self.server = HttpServer(claiming, "127.0.0.1", 0, connection_limits=self.connection_limits, **how)
        self.server.start()
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> Line:
        """Connect, and say nothing."""
        line = await asyncio.open_connection("127.0.0.1", self.server.port)
        self._writers.append(line[1])
        return line

    async def ask(self, account: str, line: Line | None = None) -> tuple[int, Line]:
        """Ask as an account, on a new connection unless one is given; return the status."""
        reader, writer = line = line or await self.connect()
        writer.write(_ASKED.replace(b"\r\n\r\n", b"\r\nAuthorization: %b\r\n\r\n" % account.encode()))
        head, _body = await asyncio.wait_for(_answer(reader), PATIENCE_SECONDS)
        return int(head.split()[1]), line

    async def stop(self) -> None:
        """End all."""
        for writer in self._writers:
            writer.close()
        await self.server.drain()


@pytest.fixture
async def served() -> AsyncIterator[Callable[..., Served]]:
    """Return a function that starts servers."""
    made: list[Served] = []

    def make(**limits: int) -> Served:
        made.append(Served(**limits))
        return made[-1]

    yield make
    for each in made:
        await each.stop()


async def test_an_account_has_a_quarter(served: Callable[..., Served]) -> None:
    """One account's connections leave room for others, and one that it closes, or uses for another, makes room for its own."""
    server = served()
    (first, one), (second, two) = [await server.ask("mallory") for _ in range(2)]
    assert (first, second) == (200, 200)
    assert (await server.ask("mallory"))[0] == 429
    assert [(await server.ask(f"honest{number}"))[0] for number in range(5)] == [200] * 5
    assert (await server.ask("mallory", one))[0] == 200
    # A proxy sends requests of others by the same connection.
    assert (await server.ask("honest9", one))[0] == 200
    assert (await server.ask("mallory"))[0] == 200
    two[1].close()
    assert server.counted["account"] == 1


async def test_silent_connections_make_room(served: Callable[..., Served]) -> None:
    """Those that say nothing are two of eight together: the oldest makes room, and who logs in stays."""
    server = served()
    silent = [await server.connect() for _ in range(2)]
    assert [(await server.ask(f"honest{number}"))[0] for number in range(3)] == [200] * 3
    later = [await server.connect() for _ in range(8)]
    for reader, _writer in (*silent, *later[:6]):
        assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b""
    assert (await server.ask("honest"))[0] == 200
    assert (await server.ask("late", later[-1]))[0] == 200
    assert set(server.counted) == {"displaced"}


async def test_no_place_at_all(served: Callable[..., Served]) -> None:
    """One that is too many is told when to come again; the others go on, and it is admitted when one of them has gone."""
    server = served(of_account=8)
    lines = [(await server.ask(f"honest{number}"))[1] for number in range(8)]
    reader, writer = late = await server.connect()
    writer.write(_ASKED)
    head, body = await _answer(reader)
    assert head.startswith(b"HTTP/1.1 503") and b"application/problem+json" in head
    assert b"retry-after: 1" in head.lower() and b"connection: close" in head.lower()
    assert json.loads(body)["type"] == "urn:stanzaq:0:problem:too-many-connections"
    assert await reader.read() == b""
    assert [(await server.ask("honest0", line))[0] for line in lines] == [200] * 8
    late = await server.connect()
    lines[0][1].close()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(server.connection_limits._held) == 8:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await server.ask("late", late))[0] == 200


async def test_an_address_has_so_many(served: Callable[..., Served]) -> None:
    """Where a number is set, one address has no more connections."""
    server = served(of_address=2)
    for account, status in (("one", 200), ("two", 200), ("three", 503)):
        assert (await server.ask(account))[0] == status
    assert set(server.counted) == {"address"}


def test_long_polls_leave_room(redis: RedisServer) -> None:
    """One account's long polls take a quarter of the connections: its next connection is refused, and others are served."""
    with (
        RestFrontend(redis.url, HTTP_CONNECTIONS="8") as frontend,
        client(frontend, Accept="application/json") as polls,
        client(frontend) as second,
        client(frontend) as third,
        client(frontend, BOB) as honest,
        ThreadPoolExecutor() as threads,
    ):
        queue = polls.post("/queues").headers["Location"]
        lease = polls.post("/subscriptions", json={"destinations": [queue.rpartition("/")[2]]}).json()["href"]
        polling = threads.submit(polls.get, lease, params={"wait": 60})
        assert second.get("/queues").status_code == 200
        refused = third.get("/queues")
        assert problem(refused) == (429, "too-many-connections") and refused.headers["Retry-After"]
        assert honest.get("/queues").status_code == 200
        assert second.post(queue, content=b"x").status_code == 201
        assert len(polling.result(PATIENCE_SECONDS).json()["messages"]) == 1
        assert 'stanzaq_connections_refused_total{reason="account"} 1.0' in frontend.probe("/metrics")[1]
