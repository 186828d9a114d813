"""A minimal HTTP/1.1 client with keep-alive. Knows only what the measured servers send."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Self

from frontends.tools.servers.process import ServerError

CLIENTS: Final = 64


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: bytes) -> None:
        """Take an open connection, and the headers of every request."""
        self._reader = reader
        self._writer = writer
        self._headers = headers

    @classmethod
    async def open(cls, port: int, headers: bytes = b"") -> Self:
        """Connect to a server on this machine."""
        return cls(*(await asyncio.open_connection("127.0.0.1", port)), headers)

    async def ask(
        self, method: bytes, path: bytes, body: bytes = b"", status: bytes = b"200", kind: bytes = b"text/plain"
    ) -> bytes:
        """Send a request and return the body of the answer; raises ServerError for another status."""
        self._writer.write(
            b"%b %b HTTP/1.1\r\nHost: x\r\n%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b"
            % (method, path, self._headers, kind, len(body), body)
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        said = await self._reader.readexactly(length)
        if head.split(b" ", 2)[1] != status:
            msg = f"{method.decode()} {path.decode()}: {head[:40]!r} {said[:200]!r}"
            raise ServerError(msg)
        return said

    def close(self) -> None:
        """Disconnect."""
        self._writer.close()


Step = Callable[[int, Client], Awaitable[int]]
"""What a client repeats, given its number; returns how much it has done."""


async def rate(port: int, headers: bytes, step: Step, seconds: float) -> float:
    """Let every client repeat a step for `seconds` on its own connection; returns steps a second."""
    # Reconnect: a server closes idle connections while others are measured.
    clients = [await Client.open(port, headers) for _ in range(CLIENTS)]
    began = time.perf_counter()

    async def run(number: int) -> int:
        done = 0
        while time.perf_counter() - began < seconds:
            done += await step(number, clients[number])
        return done

    done = sum(await asyncio.gather(*map(run, range(CLIENTS))))
    spent = time.perf_counter() - began
    for client in clients:
        client.close()
    return done / spent
