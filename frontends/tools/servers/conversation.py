"""Three short XMPP conversations over a socket of 127.0.0.1. Knows stream headers; must not know who asks or why."""

import re
import socket
from hashlib import sha1
from html import escape

_SECONDS = 2.0
_LIMIT = 65_536
_CLIENT = (
    "<?xml version='1.0'?><stream:stream to='{host}' version='1.0' xmlns='jabber:client'"
    " xmlns:stream='http://etherx.jabber.org/streams'>"
)
_COMPONENT = (
    "<?xml version='1.0'?><stream:stream to='{host}' xmlns='jabber:component:accept'"
    " xmlns:stream='http://etherx.jabber.org/streams'>"
)
_REGISTER = (
    "<iq type='set' id='register'><query xmlns='jabber:iq:register'>"
    "<username>{user}</username><password>{password}</password></query></iq>"
)


def component_accepted(port: int, domain: str, secret: str) -> bool:
    """Tell whether a component of this domain completes its handshake (XEP-0114 §3)."""
    try:
        with socket.create_connection(("127.0.0.1", port), _SECONDS) as peer:
            peer.sendall(_COMPONENT.format(host=escape(domain)).encode())
            stream = re.search(r"<stream:stream[^>]*\sid=['\"]([^'\"]+)", _read_until(peer, "<stream:stream[^>]+>"))
            if stream is None:
                return False
            # XEP-0114 requires SHA-1 of the stream id and the secret.
            digest = sha1((stream[1] + secret).encode()).hexdigest()  # noqa: S324
            peer.sendall(f"<handshake>{digest}</handshake>".encode())
            return "<handshake" in _read_until(peer, "<handshake|<stream:error")
    except OSError:
        return False


def client_welcome(port: int, host: str) -> bool:
    """Tell whether a client of this host receives stream features (RFC 6120 §4.3.2)."""
    try:
        with socket.create_connection(("127.0.0.1", port), _SECONDS) as peer:
            peer.sendall(_CLIENT.format(host=escape(host)).encode())
            return "</stream:features>" in _read_until(peer, "</stream:features>|<stream:error")
    except OSError:
        return False


def register(port: int, host: str, user: str, password: str) -> str:
    """Register an account in-band (XEP-0077 §3.1); returns the server's answer if it refuses, else the empty string."""
    with socket.create_connection(("127.0.0.1", port), _SECONDS) as peer:
        peer.sendall(_CLIENT.format(host=escape(host)).encode())
        _read_until(peer, "</stream:features>")
        peer.sendall(_REGISTER.format(user=escape(user), password=escape(password)).encode())
        answer = _read_until(peer, "<iq[^>]*/>|</iq>|<stream:error")
    return "" if re.search(r"type=['\"]result['\"]", answer) else answer


def _read_until(peer: socket.socket, until: str) -> str:
    """Read until the pattern matches, or the peer closes."""
    text = ""
    while len(text) < _LIMIT and not re.search(until, text):
        data = peer.recv(4096)
        if not data:
            break
        text += data.decode(errors="replace")
    return text
