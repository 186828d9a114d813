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
    """A private server cannot start; the text says why and what to do."""


class Process:
    """A running child that the kernel kills when the thread that started it ends.

    The parent-death signal belongs to the starting *thread* (prctl(2), PR_SET_PDEATHSIG): start servers from the main one.
    `setpriv` sets it between fork and exec, which Python itself can do safely only without threads.
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
        """Start `command` in `directory`; append its output to `log`."""
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            msg = "setpriv is missing: install util-linux"
            raise ServerError(msg)
        self._log = log
        with log.open("ab") as output:
            # In a session of its own, so that Ctrl-C reaches only this program, which then ends its servers in order.
            self._child = subprocess.Popen(  # noqa: S603  (a command of ours)
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

    def cpu_seconds(self) -> float:
        """Return the CPU time of the server with all its threads, to the nanosecond: the ticks of `stat` are 10 ms."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(path.read_text().split()[0]) for path in tasks) / 1e9

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `ready`; if the child ends or the time is up, kill it and raise with the end of its log."""
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

    def stop(self, seconds: float = 10.0) -> int:
        """Terminate the server, and kill it when it takes too long; return its exit code."""
        self._child.terminate()
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._child.returncode

    def kill(self) -> None:
        """Kill the server with SIGKILL, as a crash would."""
        self._child.kill()
        self._child.wait()

    def pause(self) -> None:
        """Suspend the server: its sockets stay open and nothing answers."""
        self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a suspended server."""
        self._child.send_signal(signal.SIGCONT)


class Server(ABC):
    """A server in a directory. `stop` and `kill` keep its data, so that `start` continues at the same address.

    It is also a context manager, which removes a temporary directory at the end.
    """

    _ready_seconds: ClassVar[float]

    def __init__(self, directory: Path | None, kind: str) -> None:
        """Choose a directory; None: a temporary one."""
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
            # Also on Ctrl-C: a server that is still starting would write to its directory while that is removed.
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Stop the server gracefully."""
        self.process.stop()
        self._process = None

    def kill(self) -> None:
        """Kill the server, as a crash would."""
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
        """End it if it runs, and remove a temporary directory."""
        if self.running:
            # Data in a temporary directory does not need a graceful end, which takes seconds.
            self.stop() if self._temporary is None else self.kill()
        if self._temporary is not None:
            self._temporary.cleanup()


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 as `free_ports` does."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return `count` different TCP ports of 127.0.0.1, which the system assigns to nobody else within a minute.

    Each has had a connection and is in TIME_WAIT: only a server that asks for it by number, with SO_REUSEADDR, gets it.
    """
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        for probe in probes:
            # After bind(): with it, the system would also choose ports in TIME_WAIT.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.listen()
            with socket.create_connection(probe.getsockname()) as client:
                # The side that closes first keeps the port.
                probe.accept()[0].close()
                client.recv(1)
        return [probe.getsockname()[1] for probe in probes]


def wait_for(found: Callable[[], T | None], seconds: float, what: str, *passing: type[Exception]) -> T:
    """Poll until `found` returns something; ignores `passing` errors, and raises with `what` when the time is up."""
    deadline = time.monotonic() + seconds
    while True:
        with suppress(*passing):
            if there := found():
                return there
        if time.monotonic() > deadline:
            msg = f"{what} after {seconds:g} s"
            raise ServerError(msg)
        time.sleep(_POLL_SECONDS)
