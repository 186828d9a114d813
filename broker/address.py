"""Where to listen or to connect, as settings write it. Must not know any setting."""

from typing import NamedTuple


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int


def read_address(value: object) -> object:
    """Read `HOST:PORT`; what is no text is for others to judge."""
    if not isinstance(value, str):
        return value
    host, colon, port = value.strip().rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 65_536):
        msg = f"{value[:80]!r} is not HOST:PORT"
        raise ValueError(msg)
    return Address(host.removeprefix("[").removesuffix("]"), int(port))
