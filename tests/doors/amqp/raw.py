"""A client by hand: bytes of SASL and of AMQP, also such as no library would send."""

import socket
import struct

from frontends.amqp.protocol import sasl, types
from tests.doors.amqp.served import AmqpFrontend
from tests.doors.frontend import ALICE, PASSWORD

NULL, TRUE, FALSE, ZERO = b"\x40", b"\x41", b"\x42", b"\x43"


def plain(jid: str = ALICE, password: str = PASSWORD) -> bytes:
    """Write header and init of SASL PLAIN."""
    return sasl_init(types.symbol("PLAIN"), types.binary(f"\0{jid}\0{password}".encode()))


def sasl_init(
    mechanism: bytes, response: bytes, *, code: int = 0x41, kind: int = 1, offset: int = 2, more: bytes = b""
) -> bytes:
    """Write the header of SASL and an init."""
    return sasl.SASL_HEADER + framed(performative(code, mechanism, response) + more, kind=kind, offset=offset)


def heard(line: socket.socket) -> bytes:
    """Read to the end."""
    found = b""
    try:
        while piece := line.recv(65_536):
            found += piece
    except ConnectionResetError:
        pass
    line.close()
    return found


def performative(code: int, *fields: bytes) -> bytes:
    """Write a performative."""
    return types.section(code, types.write_list(list(fields)))


def framed(body: bytes, *, channel: int = 0, kind: int = 0, offset: int = 2) -> bytes:
    """Write a frame with any body."""
    return struct.pack(">IBBH", len(body) + 8, offset, kind, channel) + body


def frame(code: int, *fields: bytes, payload: bytes = b"", channel: int = 0) -> bytes:
    """Write a frame."""
    return framed(performative(code, *fields) + payload, channel=channel)


def uint(number: int) -> bytes:
    """Write a number of 32 bits."""
    return struct.pack(">BI", 0x70, number)


def source(address: bytes = NULL, *more: bytes) -> bytes:
    """Write a source."""
    return performative(0x28, address, *more)


def target(address: bytes = NULL, *more: bytes) -> bytes:
    """Write a target."""
    return performative(0x29, address, *more)


OPEN = frame(0x10, types.string("raw"))
BEGIN = frame(0x11, NULL, ZERO, uint(2**31 - 1), uint(2**31 - 1))


def connected(frontend: AmqpFrontend) -> socket.socket:
    """Authenticate, and write the header of AMQP, by hand."""
    line = frontend.raw()
    line.sendall(plain())
    line.recv(4096)
    line.sendall(sasl.AMQP_HEADER)
    return line


def opened(frontend: AmqpFrontend) -> socket.socket:
    """Open a connection and a session by hand."""
    line = connected(frontend)
    line.sendall(OPEN + BEGIN)
    return line


def attach(name: str, handle: int, node: str) -> bytes:
    """Write the attach of a sender, which settles nothing by itself."""
    ends = [source(), target(types.string(node))]
    return frame(0x12, types.string(name), uint(handle), FALSE, b"\x50\x00", NULL, *ends, NULL, NULL, ZERO)


def receiver(name: str, handle: int, node: str) -> bytes:
    """Write the attach of a receiver."""
    return frame(0x12, types.string(name), uint(handle), TRUE, NULL, NULL, source(types.string(node)), target())


def transfer(
    handle: int, number: int | None, tag: bytes | None, *more: bytes, message: bytes = b"\x00\x53\x75\xa0\x01x"
) -> bytes:
    """Write a transfer of a small message; `more` are the fields from the format on."""
    fields = [uint(handle), NULL if number is None else uint(number), NULL if tag is None else types.binary(tag), *more]
    return frame(0x14, *fields, payload=message)


def until(line: socket.socket, sign: bytes) -> bytes:
    """Read until these bytes have come."""
    found = b""
    while sign not in found:
        piece = line.recv(65_536)
        assert piece, found
        found += piece
    return found
