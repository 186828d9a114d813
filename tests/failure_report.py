"""Report of a failed test: how to repeat it, the servers' logs since it began, and the last stanzas.

A plugin of pytest, which tests/conftest.py registers. Must not know any one test or server.
"""

import logging
from collections import deque
from collections.abc import Generator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final

import pytest

from frontends.tools.servers.process import Process, Server
from tests import redis_latency

REPORT: Final = "stanzaq-failure-report"
"""The plugin's name."""

LINES: Final = 40
STANZAS: Final = 30
CHARACTERS: Final = 1_000

_STREAMS: Final = logging.getLogger("slixmpp.xmlstream.xmlstream")
_MARKS: Final = ("SEND:", "RECV:")


class FailureReport:
    """Remembers the logs of all servers that this process starts, and the stanzas of its XMPP clients."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._places: set[Path] = set()
        self._read: dict[Path, int] = {}
        self._kept: dict[Path, str] = {}
        self._stanzas: deque[tuple[str, Any]] = deque(maxlen=STANZAS)
        self._patch = pytest.MonkeyPatch()

    def watch(self, place: Path) -> None:
        """Report the logs in a directory from now on."""
        self._places.add(place)

    def pytest_configure(self) -> None:
        """Register for servers that start, and for slixmpp's records."""
        begin, end = Process.__init__, Server.__exit__

        @wraps(begin)
        def begun(process: Process, command: Sequence[str], *, log: Path, **how: object) -> None:
            self.watch(log.parent)
            begin(process, command, log=log, **how)  # type: ignore[arg-type]

        @wraps(end)
        def ended(server: Server, *fault: object) -> None:
            if any(fault):
                # Its directory is removed before the report of the test is made.
                self._kept.update(self._said(server.directory))
            end(server, *fault)

        self._patch.setattr(Process, "__init__", begun)
        self._patch.setattr(Server, "__exit__", ended)
        self._patch.setattr(_STREAMS, "level", logging.DEBUG)
        _STREAMS.addFilter(self._hear)

    def pytest_unconfigure(self) -> None:
        """Remove the registrations."""
        _STREAMS.removeFilter(self._hear)
        self._patch.undo()

    def pytest_runtest_logstart(self) -> None:
        """Forget the records of earlier tests."""
        self._stanzas.clear()
        self._kept.clear()
        self._places = {place for place in self._places if place.exists()}
        self._read = {log: log.stat().st_size for log in _logs(*self._places)}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add to the report of a failed test."""
        report = yield
        if report.failed:
            report.sections.append(("how to play it again", _again(item)))
            found = self._kept | self._said(*self._places)
            report.sections += [(f"log of a server: {log}", said) for log, said in sorted(found.items())]
            if self._stanzas:
                stanzas = [f"{mark} {str(stanza)[:CHARACTERS]}" for mark, stanza in self._stanzas]
                report.sections.append(("the last stanzas", "\n".join(stanzas)))
        return report

    def _hear(self, record: logging.LogRecord) -> bool:
        """Keep stanzas as they are, to be written when needed; slixmpp's other records below INFO are dropped."""
        if record.levelno > logging.DEBUG:
            return True
        mark, _, rest = str(record.msg).partition(" ")
        if mark in _MARKS and rest == "%s" and isinstance(record.args, tuple):
            self._stanzas.append((mark, record.args[0]))
        return False

    def _said(self, *places: Path) -> dict[Path, str]:
        """Return the last lines of each log in the directory since the test began."""
        found: dict[Path, str] = {}
        for log in _logs(*places):
            with log.open("rb") as file:
                file.seek(self._read.get(log, 0))
                lines = file.read().decode(errors="replace").splitlines()
            if lines:
                found[log] = "\n".join(lines[-LINES:])
        return found


def _logs(*places: Path) -> list[Path]:
    """Return the log files: standard output, and the server's own."""
    return [log for place in places for log in place.glob("*.log")]


def _again(item: pytest.Item) -> str:
    """Return the command that repeats a test with the same random choices; mutmut runs all tests without pytest-randomly."""
    latency = f"{redis_latency.NAME}={redis_latency.SEED} " if redis_latency.SEED else ""
    seed = item.config.getoption("randomly_seed", None)
    choices = "-p no:randomly" if seed is None else f"-p randomly --randomly-seed={seed}"
    return f"{latency}.venv/bin/pytest '{item.nodeid}' -n 0 {choices}"
