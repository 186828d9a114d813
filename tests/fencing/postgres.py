"""A private PostgreSQL for tests, on a free port of loopback. Must not know the data in it."""

import os
import pwd
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final

from frontends.tools.servers.process import Process, Server, ServerError, free_port

FULL: Final = "postgres"
BARE: Final = "bare"
"""Databases with and without tables."""

_USER: Final = "postgres"
"""Who runs it if root runs the tests, which it refuses; its package makes that user."""

_OPTIONS: Final = {"fsync": "off", "unix_socket_directories": "", "listen_addresses": "127.0.0.1", "lc_messages": "C"}


def _programs() -> Path:
    """Return the directory of its programs, which Debian has on no PATH."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: float(place.parent.name))
    if not places:
        msg = "PostgreSQL is missing: apt-get install postgresql"
        raise ServerError(msg)
    return places[-1]


class PostgresServer(Server):
    """One PostgreSQL, which trusts the user `stanzaq`."""

    _ready_seconds = 60.0

    def __init__(self) -> None:
        """Choose its port and a temporary directory."""
        super().__init__(None, "postgres")
        self.port = free_port()
        self._data = self.directory / "data"
        self._programs = _programs()
        # The signal that ends it with this process is forgotten when the user changes, so it is set once more.
        self._as_user = ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--init-groups", "--pdeathsig=KILL"]

    def url(self, database: str = FULL, scheme: str = "postgresql") -> str:
        """Return the URL of a database."""
        return f"{scheme}://stanzaq@127.0.0.1:{self.port}/{database}"

    def _command(self, *words: str) -> list[str]:
        return [*(self._as_user if os.geteuid() == 0 else ()), *words]

    def _launch(self) -> Process:
        if os.geteuid() == 0:
            owner = pwd.getpwnam(_USER)
            os.chown(self.directory, owner.pw_uid, owner.pw_gid)
        options = ["--auth=trust", "--username=stanzaq", "--encoding=UTF8", "--locale=C", "--no-sync"]
        make = self._command(str(self._programs / "initdb"), f"--pgdata={self._data}", *options)
        subprocess.run(make, check=True, capture_output=True, cwd=self.directory, timeout=60)
        settings = [f"--{name}={value}" for name, value in (_OPTIONS | {"port": str(self.port)}).items()]
        serve = self._command(str(self._programs / "postgres"), "-D", str(self._data), *settings)
        return Process(serve, directory=self.directory, log=self.directory / "postgres.log")

    def _ready(self) -> bool:
        # While it starts it accepts connections and refuses them.
        is_ready = [str(self._programs / "pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={self.port}"]
        try:
            socket.create_connection(("127.0.0.1", self.port), 1.0).close()
        except OSError:
            return False
        return subprocess.run(is_ready, check=False, timeout=10).returncode == 0
