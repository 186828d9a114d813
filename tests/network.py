"""A network that can hang silently, be slow, and be cut: TCP proxies in a thread. Knows bytes only."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Link:
    """One way between two peers; what is set holds for both directions and for all its connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Be run by a loop in another thread."""
        self._loop = loop
        self._forwarding = asyncio.Event()
        self._forwarding.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._servers: list[asyncio.Server] = []
        self._serving: set[asyncio.Task[None] | None] = set()
        self._delay = 0.0
        self.held = threading.Event()
        """Something was kept back while the link hung."""

    def lead(self, port: int) -> int:
        """Lead to a port of loopback; gives the port that leads there."""

        async def listen() -> int:
            def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Coroutine[Any, Any, None]:
                return self._serve(port, reader, writer)

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self._servers.append(server)
            return int(server.sockets[0].getsockname()[1])

        return asyncio.run_coroutine_threadsafe(listen(), self._loop).result()

    def hang(self) -> None:
        """Forward nothing; connections stay open."""
        self.held.clear()
        self._loop.call_soon_threadsafe(self._forwarding.clear)

    def heal(self) -> None:
        """Forward again, what was kept back first."""
        self._loop.call_soon_threadsafe(self._forwarding.set)

    def slow(self, seconds: float) -> None:
        """Delay everything by so long in each direction."""
        self._delay = seconds

    def cut(self) -> None:
        """Close all connections; what was kept back is lost."""
        for writer in tuple(self._writers):
            self._loop.call_soon_threadsafe(writer.transport.abort)

    async def close(self) -> None:
        """Lead nowhere any more; run by the loop."""
        for server in self._servers:
            server.close()
        for writer in self._writers:
            writer.transport.abort()
        # What a hanging link has kept back is dropped, since its way is closed.
        self._forwarding.set()
        await asyncio.gather(*filter(None, self._serving))

    async def _serve(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._serving.add(task)
        try:
            await self._forward(port, reader, writer)
        finally:
            self._serving.discard(task)

    async def _forward(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, far_writer}
        self._writers |= both
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        self._writers -= both

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if not self._forwarding.is_set():
                    self.held.set()
                    await self._forwarding.wait()
                if writer.is_closing():
                    return
                self._loop.call_later(self._delay, writer.write, data)
        self._loop.call_later(self._delay, writer.close)


@contextmanager
def network(count: int) -> Iterator[list[Link]]:
    """Run so many links."""
    loop, ending = asyncio.new_event_loop(), asyncio.Event()
    links = [Link(loop) for _ in range(count)]

    async def forward() -> None:
        await ending.wait()
        for link in links:
            await link.close()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(forward())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield links
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join()
