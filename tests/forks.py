"""Starts the project's own programs quickly: forks them from a process that has imported them, instead of a new interpreter.

Imports are most of what a short program costs, and tests start hundreds. Inside `Forks` this holds for every way to start one by
`subprocess` or asyncio, and for what forked programs start in turn. What is started is a child of its starter and the program
itself, no launcher: its id, exit code and signals are as usual. A new interpreter starts it wherever that could make a
difference (`_request`), and in `Forks.suspended`.
Knows processes; tests/fork_server.py forks.
"""

import ctypes
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

_PROGRAMS: Final = ("frontends.cli", "tests.contract.several", "tests.faults.player")
"""What Python runs by `-m`."""

_LATE: Final = (
    "frontends.amqp.server",
    "frontends.compose",
    "frontends.rest.app",
    "frontends.tracing",
    "frontends.xmpp.component",
    "tests.packaged",
)
"""What they import, or do, when they need it."""

_DYING: Final = ["--pdeathsig", "KILL", "--"]
"""Arguments of `setpriv` before a program that dies with its starter."""

_READ_LATE: Final = ("COLUMNS", "PYSPARK_", "PYTEST_", "SPARK_", "STANZAQ_", "TMPDIR")
"""How the variables begin that no import reads; a session of Spark sets its own in the process of the tests."""

_ROOT: Final = Path(__file__).resolve().parents[1]
_PR_SET_CHILD_SUBREAPER: Final = 36

_usual: Any = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_SIGNATURE: Final = inspect.signature(_usual)


class Forks:
    """Replaces how `subprocess.Popen` starts programs; the first one that can be forked starts the server."""

    def __init__(
        self, programs: Sequence[str] = _PROGRAMS, late: Sequence[str] = _LATE, connection: socket.socket | None = None
    ) -> None:
        """Choose modules to run as programs, and others to import; or a connection to a server that has done so."""
        self._programs, self._late = programs, late
        self._environment = dict(os.environ)
        self._replaced: Any = None
        self._suspended = False
        self._lock = threading.Lock()
        self._connection = connection
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Begin."""

        def execute(program: Any, *arguments: Any, **named: Any) -> None:  # noqa: ANN401  (a private method)
            self._execute(program, *arguments, **named)

        self._replaced = subprocess.Popen._execute_child  # type: ignore[attr-defined]
        subprocess.Popen._execute_child = execute  # type: ignore[attr-defined]
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        subprocess.Popen._execute_child = self._replaced  # type: ignore[attr-defined]
        self._disconnect()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Start programs as users do."""
        self._suspended = True
        try:
            yield
        finally:
            self._suspended = False

    def _execute(self, program: Any, *arguments: Any, **named: Any) -> None:  # noqa: ANN401  (a private method)
        """Start a process for a Popen, and close the ends of its pipes."""
        given = _SIGNATURE.bind(program, *arguments, **named).arguments
        request = None if self._suspended else _request(given, self._programs, self._environment)
        if request is None:
            _usual(program, *arguments, **named)
            return
        pipes = (given["p2cread"], given["c2pwrite"], given["errwrite"])
        program.pid = self._fork(request, [own if pipe == -1 else pipe for own, pipe in enumerate(pipes)])
        program._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        program._close_pipe_fds(*(given[end] for end in ends))

    def _fork(self, request: Mapping[str, Any], files: Sequence[int]) -> int:
        """Start a program as a child of this process, with these as its standard files; return its id."""
        with self._lock:
            connection = self._connection = self._connection or self._connect()
            # The program's parent ends at once, which leaves it to the nearest ancestor that takes orphans.
            _take_orphans(1)
            try:
                socket.send_fds(connection, [b"+"], files)
                connection.sendall(json.dumps(request).encode() + b"\n")
                return int(connection.recv(20))
            except BaseException:
                # A later answer would be taken for that to the next request.
                self._disconnect()
                raise
            finally:
                _take_orphans(0)

    def _connect(self) -> socket.socket:
        """Start the server; it ends when the connection does."""
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(number), *self._programs, "", *self._late],
                cwd=_ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[number],
            )
        return ours

    def _disconnect(self) -> None:
        """End the server; programs run on."""
        if self._connection is not None and self._server is not None:
            self._connection.close()
            self._server.wait()
        self._connection = None


def _request(given: Mapping[str, Any], programs: Sequence[str], usual: Mapping[str, str]) -> dict[str, Any] | None:
    """Return what to ask the server for; None if the program, its tree, variables or options are not as the server's."""
    if not isinstance(given["args"], list | tuple):
        return None
    command = [os.fsdecode(word) for word in given["args"]]
    dying = Path(command[0]).name == "setpriv" and command[1:4] == _DYING
    command = command[4:] if dying else command
    environment = os.environ if given["env"] is None else given["env"]
    directory = Path(given["cwd"] or "").absolute()
    options = [given[name] for name in ("executable", "shell", "preexec_fn", "uid", "gid", "gids", "pass_fds")]
    if (
        command[:3] not in [[sys.executable, "-m", program] for program in programs]
        or _early(environment) != _early(usual)
        or not directory.is_dir()
        or (directory != _ROOT and (directory / "frontends").exists())
        or any(options)
        or (given["process_group"], given["umask"]) != (-1, -1)
    ):
        return None
    return {
        "command": command,
        "environment": dict(environment),
        "directory": str(directory),
        "dying": dying,
        "session": given["start_new_session"],
    }


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(_READ_LATE)}


def _take_orphans(number: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, number, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
