"""Addresses to listen on or to connect to, as settings write them. Must not know any setting."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

NO_NAME: Final = "?"
"""The host of a node of a cluster that prefers host names, if the node has none."""


class Address(NamedTuple):
    """A host and a port: where a door listens, or one process of Redis."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return the address as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(value: object) -> object:
    """Read `HOST:PORT`; a value that is no text is returned as it is."""
    if not isinstance(value, str):
        return value
    host, colon, port = value.strip().rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 65_536):
        msg = f"{value[:80]!r} is not HOST:PORT"
        raise ValueError(msg)
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def read_node(node: Sequence[Any], asked: str) -> Address:
    """Read the address of a cluster's node from CLUSTER SLOTS; without a host it is the host that was asked."""
    host, port, *_id = node
    if host and host.decode() == NO_NAME:
        # Its other addresses are beside it: a map, or a list of names and values.
        others = node[3] if isinstance(node[3], dict) else dict(zip(node[3][::2], node[3][1::2], strict=True))
        host = others.get(b"ip")
    return Address(host.decode() if host else asked, int(port))
