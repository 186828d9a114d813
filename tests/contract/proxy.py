"""A TCP proxy between a core and its Redis that can lose, delay and cut replies. Knows bytes only."""

import asyncio
import socket
import struct
from dataclasses import dataclass
from typing import Self


@dataclass(slots=True)
class _Keeping:
    """Whether requests of a connection were held back, and whether its last one is the one that the test is about."""

    some: bool = False
    asked: bool = False


class LossyNetwork:
    """Forwards both ways; while `silent`, replies are dropped, though Redis has run the requests.

    With `cutting`, only half of the next reply comes, and then the connection is cut; while `losing`, this happens to each
    reply, so the core learns at once that it is lost, however long it would wait. `answered` is set when the reply to a
    request that contains `about` is dropped or lost.

    While `holding`, requests are held back until `release`, even if the connection is closed meanwhile. Replies come
    `delay_seconds` late.
    """

    def __init__(self, socket_path: str) -> None:
        """Lead to the Redis on this unix socket."""
        self._path = socket_path
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.silent = False
        self.losing = False
        self.delay_seconds = 0.0
        self.cutting = False
        self.about = b""
        self.answered = asyncio.Event()
        self.holding = False
        self.held = asyncio.Event()
        self.late = asyncio.Event()
        self._released = asyncio.Event()

    @property
    def port(self) -> int:
        """Where a core finds it."""
        assert self._server
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The URL for a core."""
        return f"redis://127.0.0.1:{self.port}/0"

    def reset(self) -> None:
        """Reset all connections (RST), as a firewall does that has forgotten them, or a server that dies with unread requests."""
        for writer in tuple(self._writers):
            connection = writer.get_extra_info("socket")
            if connection.family == socket.AF_INET:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()

    def release(self) -> None:
        """Forward what was held back; `late` is set when Redis has answered it."""
        self._released.set()

    async def __aenter__(self) -> Self:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cut all connections."""
        assert self._server
        self._server.close()
        for writer in tuple(self._writers):
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(self._path)
        except OSError:
            # As Redis does when it is not there.
            writer.close()
            return
        self._writers.add(up_writer)
        if writer.is_closing():
            # All connections were cut meanwhile.
            up_writer.close()
            return
        keeping = _Keeping()
        await asyncio.gather(
            self._pump(reader, up_writer, keeping, up=True), self._pump(up_reader, writer, keeping, up=False)
        )

    def _is_lost(self, keeping: _Keeping) -> bool:
        if (self.silent or self.losing) and keeping.asked:
            self.answered.set()
        return self.silent

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keeping: "_Keeping", *, up: bool
    ) -> None:
        try:
            while data := await reader.read(65_536):
                if up and self.holding:
                    keeping.some = True
                    self.held.set()
                    await self._released.wait()
                if not up and keeping.some:
                    self.late.set()
                if up:
                    keeping.asked = self.about in data
                elif self._is_lost(keeping):
                    continue
                if not up and (self.cutting or self.losing):
                    self.cutting = False
                    writer.write(data[: len(data) // 2])
                    break
                if not up and self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            if up and keeping.some and not writer.is_closing():
                # The requester has gone, but Redis's answer must be awaited all the same.
                writer.write_eof()
            else:
                writer.close()
                self._writers.discard(writer)
