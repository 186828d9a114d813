"""A network between a core and its Redis that can lose, delay and cut replies: a TCP proxy. Knows bytes only."""

import asyncio
from typing import Self


class LossyNetwork:
    """Forwards both ways; while `silent` what Redis answers is thrown away, though Redis did what was asked.

    Replies come `delay_seconds` late; of the next one after `cutting` is set half comes, and then the connection is cut.
    """

    def __init__(self, socket_path: str) -> None:
        """Lead to the Redis on this unix socket."""
        self._path = socket_path
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.silent = False
        self.delay_seconds = 0.0
        self.cutting = False
        self.answered = asyncio.Event()

    @property
    def port(self) -> int:
        """Where a core finds it."""
        assert self._server
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The same as a core is told."""
        return f"redis://127.0.0.1:{self.port}/0"

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
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(self._path)
        except OSError:
            # As one hears it from Redis itself when it is not there.
            writer.close()
            return
        self._writers |= {writer, up_writer}
        await asyncio.gather(self._pump(reader, up_writer, up=True), self._pump(up_reader, writer, up=False))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool) -> None:
        try:
            while data := await reader.read(65_536):
                if not up and self.silent:
                    self.answered.set()
                    continue
                if not up and self.cutting:
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
            writer.close()
            self._writers.discard(writer)
