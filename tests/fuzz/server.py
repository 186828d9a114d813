"""The server's end of a component's stream, in the test's own loop. Reads as strictly as servers do; knows no request."""

import asyncio
from typing import Final, cast
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from tests.fuzz.oracle import HEADER

_HANDSHAKE: Final = "{jabber:component:accept}handshake"
_SEPARATOR: Final = "\x01"
"""Between a namespace and a name: no XML can hold it, so every namespace can be read."""


class Server(asyncio.Protocol):
    """Accepts one component at a time and keeps its output; `faults` are what no server would accept."""

    def __init__(self) -> None:
        """Begin without a component."""
        self.heard: list[Element] = []
        self.faults: list[str] = []
        self.streams = 0
        self.up = asyncio.Event()
        self.down = asyncio.Event()
        self._changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the component."""
        self._transport = cast("asyncio.Transport", transport)
        self._parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._depth = 0
        self._transport.write(HEADER)

    def connection_lost(self, _: Exception | None) -> None:
        """Record that it is gone."""
        self.up.clear()
        self.down.set()

    def data_received(self, data: bytes) -> None:
        """Read its output."""
        try:
            self._parser.Parse(data, False)  # noqa: FBT003  (expat's: not the last of it)
        except expat.ExpatError as fault:
            self.faults.append(f"{fault}: {data[:2000]!r}")
            self._transport.abort()
        self._changed.set()

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 2:
            self._builder = TreeBuilder()
        if self._depth > 1:
            self._builder.start(_spelt(name), {_spelt(key): value for key, value in attributes.items()})

    def _end(self, name: str) -> None:
        self._depth -= 1
        if not self._depth:
            self._transport.write(b"</stream:stream>")
            self._transport.close()
            return
        self._builder.end(_spelt(name))
        if self._depth == 1:
            self._take(self._builder.close())

    def _text(self, text: str) -> None:
        if self._depth > 1:
            self._builder.data(text)

    def _take(self, element: Element) -> None:
        if element.tag != _HANDSHAKE:
            self.heard.append(element)
            return
        self._transport.write(b"<handshake/>")
        self.streams += 1
        self.down.clear()
        self.up.set()

    def send(self, data: bytes) -> None:
        """Send anything."""
        self._transport.write(data)

    def hang_up(self) -> None:
        """Break the connection."""
        self._transport.abort()

    async def answered(self, request: str) -> None:
        """Wait for the answer to a request of our own, and forget it."""
        while not (found := [element for element in self.heard if element.get("id") == request]):
            self._changed.clear()
            await self._changed.wait()
        self.heard.remove(found[0])


def _spelt(name: str) -> str:
    """Spell a name as ElementTree does."""
    namespace, separator, local = name.rpartition(_SEPARATOR)
    return f"{{{namespace}}}{local}" if separator else name
