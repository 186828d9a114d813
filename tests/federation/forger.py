"""A server that says whatever it likes: one stream to another server, authenticated by its certificate. Must not know a queue."""

import base64
import re
import socket
import ssl
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_SECONDS: Final = 30.0
_STREAM: Final = (
    "<stream:stream xmlns='jabber:server' xmlns:stream='http://etherx.jabber.org/streams'"
    " from='{here}' to='{there}' version='1.0'>"
)


class Forger:
    """A stream to a server of 127.0.0.1, as the server of a domain (RFC 6120 §6, SASL EXTERNAL)."""

    def __init__(self, port: int, here: str, there: str, certificate: tuple[Path, Path]) -> None:
        """Choose the port, the domains, and who this claims to be."""
        self._header = _STREAM.format(here=here, there=there)
        self._here, self._there, self._certificate = here, there, certificate
        self._peer = socket.create_connection(("127.0.0.1", port), _SECONDS)

    def __enter__(self) -> Self:
        """Encrypt and authenticate."""
        self.say(self._header, "</stream:features>")
        self.say("<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>", "<proceed")
        context = ssl.create_default_context()
        context.check_hostname = False
        context.load_cert_chain(*self._certificate)
        self._peer = context.wrap_socket(self._peer, server_hostname=self._there)
        self.say(self._header, "</stream:features>")
        name = base64.b64encode(self._here.encode()).decode()
        self.say(f"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='EXTERNAL'>{name}</auth>", "<success")
        self.say(self._header, "</stream:features>|<stream:features/>")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up."""
        self._peer.close()

    def say(self, text: str, until: str) -> str:
        """Send something and wait for what is expected; gives what was heard."""
        self._peer.sendall(text.encode())
        heard = ""
        while not re.search(until, heard):
            data = self._peer.recv(4096)
            assert data, f"closed after {heard}"
            heard += data.decode()
        return heard
