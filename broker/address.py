"""Addresses to listen on or to connect to, as settings write them. Must not know any setting."""

from typing import NamedTuple


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
