"""One server as a child process: started, awaited, ended with its parent. Must not know which server it is."""

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import ClassVar, Self, TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.02
_LOG_LINES = 30


class ServerError(Exception):
    """A private server cannot be had; the text says why and what to do."""


class Process:
    """A running child that the kernel kills when the thread that started it ends, however it ends.

    The parent-death signal belongs to the starting *thread* (prctl(2), PR_SET_PDEATHSIG): start servers from the main
    one. `setpriv` sets it between fork and exec, which Python itself can do safely only without threads.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        directory: Path,
        log: Path,
        environment: Mapping[str, str] | None = None,
        inherit: Sequence[int] = (),
    ) -> None:
        """Start `command` in `directory`; what it says goes to the end of `log`."""
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            msg = "setpriv is missing: install util-linux"
            raise ServerError(msg)
        self._log = log
        with log.open("ab") as output:
            # A session of its own, so that Ctrl-C reaches the program, which then ends its servers in order.
            self._child = subprocess.Popen(  # noqa: S603  (commands are made of our own settings)
                [setpriv, "--pdeathsig", "KILL", "--", *command],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=inherit,
            )

    @property
    def pid(self) -> int:
        """The process id of the server itself: the launcher became it by exec."""
        return self._child.pid

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `ready`; if the child ends first or the time is up, end it and raise with the end of its log."""
        deadline = time.monotonic() + seconds
        while not ready():
            code = self._child.poll()
            if code is None and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
                continue
            self.kill()
            fate = f"was not ready after {seconds:g} s" if code is None else f"ended with {code}"
            lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            msg = "\n".join([f"the server {fate}; the end of {self._log}:", *lines])
            raise ServerError(msg)

    def stop(self, seconds: float = 10.0) -> None:
        """Ask the server to end, and kill it when it takes too long."""
        self._child.terminate()
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the server with SIGKILL, as a crash would."""
        self._child.kill()
        self._child.wait()

    def pause(self) -> None:
        """Stop the server's clockwork: its sockets stay open and nothing answers."""
        self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        self._child.send_signal(signal.SIGCONT)


class Server(ABC):
    """A server in a directory; `stop` and `kill` leave its data there, so that `start` carries on at the same address.

    As a context it runs inside the `with`, and a temporary directory goes at its end.
    """

    _ready_seconds: ClassVar[float]

    def __init__(self, directory: Path | None, kind: str) -> None:
        """Choose a place; None: a temporary one."""
        self._temporary = tempfile.TemporaryDirectory(prefix=f"stanzaq-{kind}-") if directory is None else None
        self.directory = Path(self._temporary.name if self._temporary else directory or "").absolute()
        self._process: Process | None = None

    @abstractmethod
    def _launch(self) -> Process:
        """Start the process."""

    @abstractmethod
    def _ready(self) -> bool:
        """Tell whether it serves."""

    @property
    def process(self) -> Process:
        """The running server."""
        if self._process is None:
            msg = f"the server in {self.directory} is not running"
            raise ServerError(msg)
        return self._process

    @property
    def running(self) -> bool:
        """Whether it was started and neither stopped nor killed."""
        return self._process is not None

    def start(self) -> Self:
        """Start the server and wait until it serves."""
        self._process = self._launch()
        try:
            self._process.wait_until(self._ready, self._ready_seconds)
        except BaseException:
            # Ctrl-C too: a server that still starts would fill its directory again while that is being removed.
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """End the server in order."""
        self.process.stop()
        self._process = None

    def kill(self) -> None:
        """End the server as a crash would."""
        self.process.kill()
        self._process = None

    def __enter__(self) -> Self:
        """Start it."""
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        """End it if it runs, and remove its directory if that is a temporary one."""
        if self.running:
            # What is in a temporary directory is not worth the seconds of an orderly end.
            self.stop() if self._temporary is None else self.kill()
        if self._temporary is not None:
            self._temporary.cleanup()


def free_port() -> int:
    """Find a TCP port of 127.0.0.1 that nobody listens on."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Find so many of them, all different."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def awaited(found: Callable[[], T | None], seconds: float, what: str, *passing: type[Exception]) -> T:
    """Look until something is found; `passing` is what may go wrong meanwhile, `what` is said when the time is up."""
    deadline = time.monotonic() + seconds
    while True:
        with suppress(*passing):
            if there := found():
                return there
        if time.monotonic() > deadline:
            msg = f"{what} after {seconds:g} s"
            raise ServerError(msg)
        time.sleep(_POLL_SECONDS)
