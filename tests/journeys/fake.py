"""An XMPP server for one component that sends whatever a test wants. Knows the handshake of XEP-0114, and no stanza."""

import socket
import time
from collections.abc import Callable, Iterator
from hashlib import sha1
from types import TracebackType
from typing import Final, Self, cast
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from tests.journeys.service import DOMAIN
from tests.waiting import PATIENCE_SECONDS

_SECRET: Final = "fake"
_PLAIN: Final = (
    "<?xml version='1.0'?><stream:stream xmlns='jabber:component:accept'"
    f" xmlns:stream='http://etherx.jabber.org/streams' from='{DOMAIN}' id='s1'>"
)


class FakeServer:
    """A listening socket of 127.0.0.1 and its last accepted connection."""

    secret: Final = _SECRET

    def __init__(self) -> None:
        """Listen."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_SECONDS)
        self._peer = self._listener
        self._parser = _parser()
        self._depth = 0
        self.heard: list[Element] = []

    @property
    def port(self) -> int:
        """The port where it listens."""
        port: int = self._listener.getsockname()[1]
        return port

    def greet(self, header: str = _PLAIN) -> None:
        """Accept the next connection and begin its stream, with this header instead of the usual one."""
        self._peer, _ = self._listener.accept()
        self._peer.settimeout(PATIENCE_SECONDS)
        self._parser, self._depth = _parser(), 0
        self.heard = []
        self.send(header)

    def accept(self) -> None:
        """Accept the next connection and shake hands."""
        self.greet()
        expected = sha1(f"s1{_SECRET}".encode()).hexdigest()  # noqa: S324  (XEP-0114 asks for it)
        self._until(lambda: any(element.text == expected for element in self.heard))
        self.send("<handshake/>")

    def send(self, text: str | bytes) -> None:
        """Send anything."""
        self._peer.sendall(text.encode() if isinstance(text, str) else text)

    def ask(self, payload: str, sender: str, request: str, kind: str = "set") -> list[Element]:
        """Route an IQ; return all that was received up to its answer, which is last."""
        before = len(self.heard)
        self.send(f"<iq type='{kind}' id='{request}' from='{sender}' to='{DOMAIN}'>{payload}</iq>")
        return self.until_answer(request, before)

    def until_answer(self, request: str, before: int = 0) -> list[Element]:
        """Return what was received after the first `before` stanzas, up to the answer to a request."""

        def answers() -> list[int]:
            return [at for at in range(before, len(self.heard)) if self.heard[at].get("id") == request]

        self._until(lambda: bool(answers()))
        return self.heard[before : answers()[0] + 1]

    def dropped(self) -> None:
        """Wait until the frontend disconnects."""
        while self._peer.recv(65_536):
            pass
        self._peer.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what is open."""
        self._peer.close()
        self._listener.close()

    def _until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            data = self._peer.recv(65_536)
            assert data, "the frontend hung up"
            assert time.monotonic() < deadline, "the frontend never said it"
            self._parser.feed(data)
            for event, element in cast("Iterator[tuple[str, Element]]", self._parser.read_events()):
                self._depth += 1 if event == "start" else -1
                if event == "end" and self._depth == 1:
                    self.heard.append(element)


def _parser() -> "ET.XMLPullParser[Element]":
    return ET.XMLPullParser(["start", "end"])


def condition(answer: Element) -> str:
    """Return the type and the conditions of an error with spaces between; empty for a result."""
    if answer.get("type") == "result":
        return ""
    error = next(child for child in answer if child.tag.endswith("}error"))
    names = [child.tag.rpartition("}")[2] for child in error]
    return " ".join([error.get("type", ""), *(name for name in names if name != "text")])
