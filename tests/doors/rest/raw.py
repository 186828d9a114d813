"""HTTP by hand, for what no client library would send."""

import socket
import time

from tests.doors.rest.served import RestFrontend


class Line:
    """A connection to a frontend."""

    def __init__(self, frontend: RestFrontend) -> None:
        """Connect."""
        self._socket = socket.create_connection(("127.0.0.1", frontend.port), timeout=20)

    def say(self, text: bytes) -> None:
        """Send bytes; the other end may be closed already."""
        self._socket.sendall(text)

    def end(self) -> None:
        """Close the sending side."""
        self._socket.shutdown(socket.SHUT_WR)

    def first(self) -> int:
        """Read the status of an answer that is not the last."""
        heard = b""
        while b"\r\n\r\n" not in heard:
            heard += self._socket.recv(1)
        return int(heard.split(b" ", 2)[1])

    def hear(self) -> tuple[int, bytes, float]:
        """Read until the end; return the status (0 without an answer), the bytes, and the seconds that it took."""
        began, heard = time.monotonic(), b""
        try:
            while piece := self._socket.recv(65_536):
                heard += piece
        except ConnectionResetError:
            pass
        self._socket.close()
        status = int(heard.split(b" ", 2)[1]) if heard.startswith(b"HTTP/") else 0
        return status, heard, time.monotonic() - began


def asked(frontend: RestFrontend, target: bytes, authorization: str, method: bytes = b"GET") -> tuple[int, bytes]:
    """Request a target exactly as it is written."""
    line = Line(frontend)
    head = b"%b %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: %b\r\n\r\n"
    line.say(head % (method, target, authorization.encode()))
    status, heard, _ = line.hear()
    return status, heard
