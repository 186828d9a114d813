"""`stanzaq bench rest`: single messages sent and acknowledged over HTTP, next to an empty endpoint in the same run.

64 clients with keep-alive, one server process, and a Redis with an append-only file.
"""

import asyncio
import base64
import json
import sys
from contextlib import ExitStack
from typing import Final

import bcrypt
import uvloop
from rich.console import Console

from bench.doors.http import CLIENTS, Client, rate
from bench.report import Row, row_at_least, show
from frontends.tools.demo.frontend import Frontend
from frontends.tools.servers.process import Process, ServerError, free_port
from frontends.tools.servers.redis import RedisServer

BODY: Final = b"x" * 200
PREFETCH: Final = 20
_ROUNDS: Final = 3
_LEAST: Final = 1_500
_SENT_RATIO: Final = 0.3
_ACKNOWLEDGED_RATIO: Final = 0.16
"""Of one by one, each with a request of its own and one for 20."""
_WITH_NEXT_RATIO: Final = 0.25
_BATCH: Final = json.dumps([{"text": BODY.decode()}] * 200).encode()
_LOOKS, _LOOK_SECONDS = 400, 0.05
_WHO: Final = "bench@localhost"


def main(*, as_json: bool, quick: bool) -> int:
    """Run the benchmark; 1 when a target is missed. Raises ServerError when its servers cannot start."""
    seconds = 0.3 if quick else 4.0
    password = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    with ExitStack() as stack:
        status = stack.enter_context(Console(stderr=True).status("starting Redis and a frontend"))
        redis = stack.enter_context(RedisServer(options={"appendonly": "yes"}))
        port, empty_port = free_port(), free_port()
        settings = {
            "REDIS_URL": redis.url,
            "HTTP_BIND": f"127.0.0.1:{port}",
            "HTTP_PASSWORDS": f"{_WHO}:{password}",
            "HTTP_RATE": "0",
        }
        frontend = stack.enter_context(Frontend(settings, "rest"))
        empty = Process(
            [sys.executable, "-m", "bench.doors.empty", str(empty_port)],
            directory=frontend.directory,
            log=frontend.directory / "empty.log",
        )
        stack.callback(empty.kill)
        status.update("measuring an empty endpoint, sending and acknowledging, in turns")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            rows = runner.run(_measure(port, empty_port, seconds))
    return show(rows, as_json=as_json)


async def _measure(port: int, empty_port: int, seconds: float) -> list[Row]:
    """Measure all rates, alternating, so that noise hits them alike; the best repetition of each counts."""
    who = base64.b64encode(f"{_WHO}:secret".encode())
    headers = b"Authorization: Basic %b\r\nAccept: application/json\r\n" % who
    await _listens(empty_port)
    first = await Client.open(port, headers)
    await first.ask(b"PUT", b"/queues/bench", status=b"201")
    await first.ask(b"PUT", b"/queues/more", status=b"201")
    held = [await _subscribe(first, b"bench") for _ in range(CLIENTS)]
    chained = [await _subscribe(first, b"more") for _ in range(CLIENTS)]
    first.close()
    locked: list[list[str]] = [[] for _ in range(CLIENTS)]

    async def nothing(_number: int, client: Client) -> int:
        await client.ask(b"POST", b"/queues/bench", BODY)
        return 1

    async def send(_number: int, client: Client) -> int:
        await client.ask(b"POST", b"/queues/bench", BODY, b"201")
        return 1

    async def acknowledge(number: int, client: Client) -> int:
        found = json.loads(await client.ask(b"GET", held[number] + b"?wait=1"))["messages"]
        for message in found:
            await client.ask(b"DELETE", message["href"].encode())
        return len(found)

    async def send_batch(_number: int, client: Client) -> int:
        await client.ask(b"POST", b"/batches/more", _BATCH, kind=b"application/json")
        return 1

    async def acknowledge_with_next(number: int, client: Client) -> int:
        body, done = json.dumps(locked[number]).encode(), len(locked[number])
        path = chained[number] + (b"/acknowledgements?next=%d" % PREFETCH if done else b"?wait=1")
        found = json.loads(await client.ask(b"POST" if done else b"GET", path, body, kind=b"application/json"))
        locked[number] = [message["href"] for message in found["messages"]]
        return done

    of_nothing = sent = acknowledged = with_next = 0.0
    for _ in range(_ROUNDS):
        of_nothing = max(of_nothing, await rate(empty_port, headers, nothing, seconds))
        sent = max(sent, await rate(port, headers, send, seconds))
        acknowledged = max(acknowledged, await rate(port, headers, acknowledge, seconds))
        await rate(port, headers, send_batch, seconds)
        with_next = max(with_next, await rate(port, headers, acknowledge_with_next, seconds))
    return [
        row_at_least("sent", "messages/s", sent, of_nothing, _SENT_RATIO),
        row_at_least("acknowledged", "messages/s", acknowledged, of_nothing, _ACKNOWLEDGED_RATIO),
        row_at_least("acknowledged_with_next", "messages/s", with_next, of_nothing, _WITH_NEXT_RATIO),
        row_at_least("sent_of_1500", "messages/s", sent, _LEAST, 1.0),
        row_at_least("acknowledged_of_1500", "messages/s", acknowledged, _LEAST, 1.0),
    ]


async def _subscribe(client: Client, queue: bytes) -> bytes:
    form = b"destinations=%b&lease=600&prefetch=%d" % (queue, PREFETCH)
    made = json.loads(await client.ask(b"POST", b"/subscriptions", form, b"201", b"application/x-www-form-urlencoded"))
    href: str = made["href"]
    return href.encode()


async def _listens(port: int) -> None:
    """Wait for a server that is starting."""
    for _ in range(_LOOKS):
        try:
            (await Client.open(port)).close()
        except ConnectionRefusedError:
            await asyncio.sleep(_LOOK_SECONDS)
        else:
            return
    msg = "the empty endpoint does not start"
    raise ServerError(msg)
