"""One frontend as a private server. Knows its settings and its probe; must not know what it serves."""

import os
import sys
from collections.abc import Mapping
from typing import Final

from frontends import health
from frontends.tools.servers.process import Process, Server, ServerError, free_port

_PREFIX: Final = "STANZAQ_"
_LOG_LINES: Final = 30


class Frontend(Server):
    """`stanzaq serve` as a child process, ready when its readiness probe says so."""

    _ready_seconds = 30.0

    def __init__(self, settings: Mapping[str, str], door: str = "xmpp") -> None:
        """Take settings by their names without the prefix; ignores the user's environment."""
        super().__init__(None, "frontend")
        self._door = door
        self._port = free_port()
        self._settings = {**settings, "METRICS_BIND": f"127.0.0.1:{self._port}"}
        self._log = self.directory / "frontend.log"

    def must_live(self) -> None:
        """Raise ServerError with the end of the log if the process has ended."""
        # WNOWAIT leaves the process to be reaped by its starter.
        if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
        lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        raise ServerError("\n".join(["a frontend ended by itself; the end of its log:", *lines]))

    def _launch(self) -> Process:
        own = {name: value for name, value in os.environ.items() if not name.upper().startswith(_PREFIX)}
        return Process(
            [sys.executable, "-m", "frontends.cli", "serve", self._door],
            directory=self.directory,
            log=self._log,
            environment=own | {f"{_PREFIX}{name}": value for name, value in self._settings.items()},
        )

    def _ready(self) -> bool:
        return health.ask("127.0.0.1", self._port)[0]
