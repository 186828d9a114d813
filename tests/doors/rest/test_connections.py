"""More connections than the service may have, by the server alone: the application behind it does not matter."""

import asyncio
import json

from starlette.responses import Response

from frontends.rest.server import HttpServer
from tests.waiting import PATIENCE_SECONDS

_ASKED = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def _answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read one answer: its head and its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    size = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return head, await reader.readexactly(int(size.removeprefix(b"content-length:")))


async def _all() -> None:
    server = HttpServer(
        Response("served"), "127.0.0.1", 0, slow_seconds=20, header_bytes=4_096, connections=2, drain_seconds=1
    )
    server.start()
    streams = []

    async def ask() -> tuple[bytes, bytes]:
        """Ask by a new connection, which stays."""
        streams.append(await asyncio.open_connection("127.0.0.1", server.port))
        return await again(*streams[-1])

    async def again(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[bytes, bytes]:
        writer.write(_ASKED)
        return await _answer(reader)

    try:
        # Those that have asked nothing take no room.
        idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
        streams += idle
        assert [(await ask())[1] for _ in range(2)] == [b"served"] * 2
        head, body = await ask()
        assert head.startswith(b"HTTP/1.1 503") and b"application/problem+json" in head
        assert b"retry-after: 1" in head.lower() and b"connection: close" in head.lower()
        assert json.loads(body)["type"] == "urn:stanzaq:0:problem:too-many-connections"
        # The third has ended itself, and the first two are as they were.
        *first, third = streams[3:]
        assert await third[0].read() == b""
        assert [(await again(*each))[1] for each in first] == [b"served"] * 2
        first[0][1].close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(server._server.config.admitted) > 1:  # type: ignore[attr-defined]  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        # One that was opened when there was no room asks when there is.
        assert (await again(*idle[0]))[1] == b"served"
    finally:
        for _, writer in streams:
            writer.close()
        await server.drain()


def test_too_many_connections() -> None:
    """One that is too many is told when to come again; the others go on, though there are as many as there may be."""
    asyncio.run(_all())
