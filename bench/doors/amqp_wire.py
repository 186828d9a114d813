"""A minimal AMQP client: it writes frames and only glances at incoming ones. Must not know what is measured.

A load from a full AMQP library would measure that library. This client knows what it will receive: enough for a benchmark.
"""

import socket
import struct
from typing import Final

from frontends.amqp.constants import ANNOTATIONS_FILTER, OFFSET
from frontends.amqp.protocol import types
from frontends.amqp.protocol.sasl import AMQP_HEADER

_OPEN, _BEGIN, _ATTACH, _FLOW, _TRANSFER, _DISPOSITION = range(0x10, 0x16)
_SOURCE, _TARGET = 0x28, 0x29
_NULL, _TRUE, _FALSE, _ZERO = b"\x40", b"\x41", b"\x42", b"\x43"
_SECONDS: Final = 30.0
_WINDOW: Final = 2**31 - 1
_PIECE: Final = 262_144
_ACCEPTED: Final = 0x24


class Client:
    """One connection with one link."""

    def __init__(self, port: int, node: str, *, sends: bool) -> None:
        """Attach to a node, to send, or to receive from its earliest event."""
        self._peer = socket.create_connection(("127.0.0.1", port), _SECONDS)
        self._peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.credit = self.settled = self.received = self._sent = 0
        address = types.string(node)
        begin = types.write_map([types.symbol(OFFSET), types.symbol("@earliest")])
        described = b"\x00" + types.symbol(str(ANNOTATIONS_FILTER[0])) + begin
        filters = types.write_map([types.symbol("begin"), described])
        source = [_NULL] * 7 + [filters] if not sends else []
        ends = [
            types.section(_SOURCE, types.write_list([_NULL if sends else address, *source[1:]])),
            types.section(_TARGET, types.write_list([address if sends else _NULL])),
        ]
        role = _FALSE if sends else _TRUE
        attach = [types.string("bench"), _ZERO, role, b"\x50\x00" if sends else b"\x50\x01", _NULL, *ends]
        if sends:
            attach += [_NULL, _NULL, _ZERO]
        self._peer.sendall(
            AMQP_HEADER
            + _frame(_OPEN, [types.string("bench")])
            + _frame(_BEGIN, [_NULL, _ZERO, _uint(_WINDOW), _uint(_WINDOW)])
            + _frame(_ATTACH, attach)
        )
        self._header = False
        while not (self.credit or not sends) or not self._attached:
            self.hear()

    _attached = False

    def grant(self, credit: int) -> None:
        """Grant credit for more messages."""
        flow = [_ZERO, _uint(_WINDOW), _ZERO, _uint(_WINDOW), _ZERO, _uint(self.received), _uint(credit)]
        self._peer.sendall(_frame(_FLOW, flow))

    def send(self, message: bytes, count: int) -> None:
        """Send a message `count` times at once."""
        frames = []
        for number in range(self._sent, self._sent + count):
            tag = types.binary(b"%d" % number)
            frames.append(_frame(_TRANSFER, [_ZERO, _uint(number), tag, _ZERO, _FALSE], message))
        self._sent += count
        self.credit -= count
        self._peer.sendall(b"".join(frames))

    def hear(self) -> None:
        """Process the input that has arrived."""
        data = self._peer.recv(_PIECE)
        if not data:
            msg = "the frontend has closed the connection"
            raise ConnectionError(msg)
        self._buffer += data
        if not self._header:
            if len(self._buffer) < 8:
                return
            self._buffer, self._header = self._buffer[8:], True
        at, data = 0, self._buffer
        while len(data) - at >= 8:
            size = int(struct.unpack_from(">I", data, at)[0])
            if len(data) - at < size:
                break
            if size > 8:
                self._take(data, at + data[at + 4] * 4)
            at += size
        self._buffer = data[at:]

    def _take(self, data: bytes, at: int) -> None:
        match data[at + 2]:
            case 0x12:
                self._attached = True
            case 0x13:
                fields = [types.integer(data, each) for each in types.items(data, at + 3)]
                if len(fields) > 6:
                    self.credit = (fields[5] or 0) + (fields[6] or 0) - self._sent
            case 0x14:
                self.received += 1
            case 0x15:
                places = list(types.items(data, at + 3))
                fields = [types.integer(data, each) for each in places]
                first, last = fields[1] or 0, fields[2] if len(fields) > 2 else None
                # The state is a described list whose descriptor is a small number (part 3, §3.4).
                if len(places) < 5 or data[places[4] + 2] != _ACCEPTED:
                    msg = "the frontend has refused a message"
                    raise ConnectionError(msg)
                self.settled += (first if last is None else last) - first + 1

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()


def _uint(number: int) -> bytes:
    return struct.pack(">BI", 0x70, number)


def _frame(code: int, fields: list[bytes], payload: bytes = b"") -> bytes:
    body = types.section(code, types.write_list(fields)) + payload
    return struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body
