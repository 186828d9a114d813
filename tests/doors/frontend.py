"""A frontend of any door as a child process, and its users. Must not know the door's protocol."""

import os
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

import bcrypt

from frontends.tools.servers.process import Process, Server, free_port
from tests.admitting import ADMITTING_ENVIRONMENT
from tests.redis_latency import FRONTEND
from tests.waiting import PATIENCE_SECONDS

ALICE, BOB = "alice@example.org", "bob@example.org"
PASSWORD = "secret"

HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()


class DoorFrontend(Server):
    """One `stanzaq serve DOOR`, whose settings begin with `prefix`; `settings` are `STANZAQ_*` without theirs."""

    door: str
    prefix: str

    _ready_seconds = 30.0

    def __init__(self, redis_url: str, **settings: str) -> None:
        """Choose the Redis, and ports."""
        super().__init__(None, "frontend")
        self.port, self._health = free_port(), free_port()
        self.redis_url = redis_url
        self._settings = {
            "REDIS_URL": redis_url,
            f"{self.prefix}_BIND": f"127.0.0.1:{self.port}",
            f"{self.prefix}_PASSWORDS": f"{ALICE}:{HASH}\n{BOB}:{HASH}\n",
            "METRICS_BIND": f"127.0.0.1:{self._health}",
            "LOG_FORMAT": "json",
            # All tests of one process create nodes of the same few owners.
            "NODE_QUOTA": "100000",
            "PARTITION_QUOTA": "1000000",
            **ADMITTING_ENVIRONMENT,
            **settings,
        }

    @property
    def log(self) -> str:
        """Return its log so far."""
        return (self.directory / "frontend.log").read_text()

    def probe(self, path: str) -> tuple[int, str]:
        """Ask a probe; 0 when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, "nobody listens"

    def with_passwords(self, path: Path) -> Self:
        """Read the passwords from a file."""
        del self._settings[f"{self.prefix}_PASSWORDS"]
        self._settings[f"{self.prefix}_PASSWORDS_FILE"] = str(path)
        return self

    def waiting(self) -> Self:
        """Take it as started while it waits for Redis."""
        self._ready = lambda: self.probe("/readyz")[0] == 503  # type: ignore[method-assign]
        return self

    def look(self) -> None:
        """Send SIGHUP, and wait until its files were read again, or refused."""
        before = self._looks()
        os.kill(self.process.pid, signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._looks() == before:
            assert self.process._child.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)

    def _looks(self) -> int:
        return self.log.count("files were read again") + self.log.count("files cannot be used")

    def _launch(self) -> Process:
        own = {name: value for name, value in os.environ.items() if not name.startswith("STANZAQ_")}
        return Process(
            [sys.executable, "-m", FRONTEND, "serve", self.door],
            directory=Path.cwd(),
            log=self.directory / "frontend.log",
            environment=own | {f"STANZAQ_{name}": value for name, value in self._settings.items()},
        )

    def _ready(self) -> bool:
        return self.probe("/readyz")[0] == 200
