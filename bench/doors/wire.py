"""A minimal XMPP client: it writes bytes and searches the input for a few tags. Must not know what is measured.

A load from a full XMPP library would measure that library. This client parses nothing: it searches for complete tags by a
pattern, which is enough for a benchmark and for nothing else.
"""

import asyncio
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Final, Self, cast

from frontends.tools.servers.process import ServerError

_SECONDS: Final = 10.0
_STREAM: Final = (
    "<?xml version='1.0'?><stream:stream to='{host}' version='1.0' xmlns='jabber:client'"
    " xmlns:stream='http://etherx.jabber.org/streams'>"
)
_AUTH: Final = "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='ANONYMOUS'/>"
_BIND: Final = "<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>"

Take = Callable[[re.Match[bytes]], None]


@dataclass(frozen=True, slots=True)
class Session:
    """A logged-in connection, for one request at a time."""

    peer: socket.socket
    jid: str

    @classmethod
    def open(cls, port: int, host: str) -> Self:
        """Log in at 127.0.0.1 as an anonymous account of `host` (RFC 6120 §6, §7; RFC 4505)."""
        peer = socket.create_connection(("127.0.0.1", port), _SECONDS)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = _STREAM.format(host=escape(host))
        _say(peer, stream, "</stream:features>")
        _say(peer, _AUTH, "<success[^>]*>")
        _say(peer, stream, "</stream:features>")
        bound = re.search("<jid>([^<]+)</jid>", _say(peer, _BIND, "</iq>"))
        if bound is None:
            msg = "the XMPP server bound no resource"
            raise ServerError(msg)
        return cls(peer, bound[1])

    def tell(self, stanza: str) -> None:
        """Send a stanza that has no answer."""
        self.peer.sendall(stanza.encode())

    def ask(self, to: str, content: str) -> None:
        """Send a request and wait for its result."""
        answer = _say(self.peer, f"<iq type='set' id='ask' to='{to}'>{content}</iq>", "</iq>|<iq[^>]*/>")
        if not re.search("<iq[^>]* type='result'", answer):
            msg = f"refused: {content}\n{answer}"
            raise ServerError(msg)


class Wire(asyncio.Protocol):
    """A session under load: `take` gets each match of `pattern`, which must match complete tags only."""

    def __init__(self, pattern: re.Pattern[bytes], take: Take) -> None:
        """Prepare; `over` connects."""
        self._pattern = pattern
        self._take = take
        self._rest = b""
        self._gathered: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport

    @classmethod
    async def over(cls, session: Session, pattern: re.Pattern[bytes], take: Take) -> "Wire":
        """Continue a session's connection."""
        session.peer.setblocking(False)  # noqa: FBT003  (the library's signature)
        _, wire = await asyncio.get_running_loop().create_connection(lambda: cls(pattern, take), sock=session.peer)
        return wire

    def write(self, data: bytes) -> None:
        """Gather bytes for one write at the end of this turn of the event loop."""
        self._gathered.append(data)
        if len(self._gathered) == 1:
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Search all complete tags."""
        data = self._rest + data
        end = data.rfind(b">") + 1
        self._rest = data[end:]
        for found in self._pattern.finditer(data, 0, end):
            self._take(found)

    def _flush(self) -> None:
        self._transport.write(b"".join(self._gathered))
        self._gathered.clear()


def _say(peer: socket.socket, text: str, until: str) -> str:
    """Send, and read until the pattern matches."""
    peer.sendall(text.encode())
    heard = ""
    while not re.search(until, heard):
        data = peer.recv(65_536)
        if not data:
            msg = f"the XMPP server hung up; it said: {heard}"
            raise ServerError(msg)
        heard += data.decode()
    return heard
