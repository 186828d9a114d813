"""A DNS server for tests. It answers SRV and A from records as docs/federation.md writes them. Must not know XMPP."""

import socket
import struct
import threading
from contextlib import suppress
from typing import Final, Self

_KINDS: Final = {"A": 1, "SRV": 33}
_FOUND: Final = 0x8580
_NO_SUCH_NAME: Final = 0x8583
_HEADER: Final = struct.Struct("!6H")
_RECORD: Final = struct.Struct("!HHIH")


class Names:
    """What one machine is told of names, on a port of its own; the records may change at any time."""

    def __init__(self) -> None:
        """Know no name yet."""
        self._records: dict[tuple[bytes, int], bytes] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def port(self) -> int:
        """Where it answers."""
        return int(self._socket.getsockname()[1])

    def add(self, zone: str) -> None:
        """Add records, a line for each."""
        for line in zone.splitlines():
            name, kind, *words = line.split()
            *numbers, target = words
            data = socket.inet_aton(target) if kind == "A" else struct.pack("!3H", *map(int, numbers)) + _labels(target)
            self._records[_labels(name), _KINDS[kind]] = data

    def __enter__(self) -> Self:
        """Serve."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        # It is not connected, which Linux says after it has woken the thread.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            query, peer = self._socket.recvfrom(4096)
            if not query:
                return
            self._socket.sendto(self._answered(query), peer)

    def _answered(self, query: bytes) -> bytes:
        end = query.index(b"\0", _HEADER.size) + 1
        name = query[_HEADER.size : end].lower()
        (kind,) = struct.unpack_from("!H", query, end)
        data = self._records.get((name, kind), b"")
        # It is kept by nobody: its time to live is 0.
        answer = b"\xc0\x0c" + _RECORD.pack(kind, 1, 0, len(data)) + data if data else b""
        status = _FOUND if any(known == name for known, _ in self._records) else _NO_SUCH_NAME
        return query[:2] + _HEADER.pack(0, status, 1, bool(data), 0, 0)[2:] + query[_HEADER.size : end + 4] + answer


def _labels(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.rstrip(".").split(".")) + b"\0"
