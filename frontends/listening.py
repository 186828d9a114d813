"""Listening sockets: one meaning of an address, for doors and metrics alike. Must not know what is served."""

import socket
from typing import Final

_BACKLOG: Final = 1_024
_ALL, _ALL_IPV4 = "::", "0.0.0.0"  # noqa: S104  (what a setting may ask for)


def listen(host: str, port: int) -> socket.socket:
    """Listen at an address; `::` is every address of the system, of IPv6 and IPv4 or of the one that it has. Raises OSError."""
    both = host == _ALL and socket.has_dualstack_ipv6()
    if host == _ALL and not both:
        host = _ALL_IPV4
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)


def to_reach(host: str) -> str:
    """Return where this machine reaches what listens at an address: IPv4 always leads to `::`."""
    return "127.0.0.1" if host == _ALL else host
