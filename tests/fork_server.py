"""The program that tests/forks.py asks to start others: it imports them once, and forks itself for each.

A fork must find no threads, so this imports and does nothing else. A program that starts others gets a server of its own, which
is forked from it before it begins: they are its children.
"""

import ctypes
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.forks import Forks

_STARTERS: Final = ("bench", "demo", "dev", "start")
"""First words of programs that start others: commands of `stanzaq`, and one of a test's."""

_POLL_SECONDS: Final = 0.0005
_PR_SET_PDEATHSIG: Final = 1


def _prepare(modules: Sequence[str]) -> list[str]:
    """Import modules; return those that are programs."""
    for module in filter(None, modules):
        importlib.import_module(module)
    programs = [*modules[: modules.index("")]]
    for program in programs:
        # Python runs it as `__main__`, and warns of a second one.
        del sys.modules[program]
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "an import has started a thread"
    assert tempfile.tempdir is None, "an import has chosen the directory for temporary files"
    gc.freeze()
    return programs


def _serve(connection: socket.socket) -> list[str]:
    """Fork a program for each request, until there are no more; return its command in a program, nothing in the server."""
    # Ctrl-C is for the programs.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    starter = os.getppid()
    with connection, connection.makefile() as requests:
        while files := socket.recv_fds(connection, 1, 3)[1]:
            request = json.loads(requests.readline())
            reading, writing = os.pipe()
            between = os.fork()
            if between == 0:
                between = os.getpid()
                pid = os.fork()
                if pid:
                    os.write(writing, str(pid).encode())
                    os._exit(0)
                for file in (reading, writing):
                    os.close(file)
                _become(request, files, between, starter)
                return list(request["command"])
            os.waitpid(between, 0)
            connection.sendall(os.read(reading, 20))
            for file in (*files, reading, writing):
                os.close(file)
    return []


def _begin(command: list[str], programs: Sequence[str]) -> None:
    """Run a program, after a fork that serves it if it starts others."""
    while command[3:4] and command[3] in _STARTERS:
        ours, theirs = socket.socketpair()
        if os.fork():
            theirs.close()
            Forks(programs, (), ours).__enter__()
            break
        ours.close()
        with Path(os.devnull).open("r+b") as nothing:
            for own in range(3):
                os.dup2(nothing.fileno(), own)
        os.chdir("/")
        command = _serve(theirs)
        if not command:
            os._exit(0)
    runpy.run_module(command[2], run_name="__main__", alter_sys=True)


def _become(request: Mapping[str, Any], files: Sequence[int], between: int, starter: int) -> None:
    """Take on all that a new process would have."""
    while os.getppid() == between:
        time.sleep(_POLL_SECONDS)
    if request["dying"]:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != starter:
            os._exit(1)
    if request["session"]:
        os.setsid()
    os.chdir(request["directory"])
    # Python sets the locale's variable itself.
    for name in os.environ.keys() - request["environment"].keys() - {"LC_CTYPE"}:
        del os.environ[name]
    os.environ.update(request["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for own, (file, name) in enumerate(zip(files, ("stdin", "stdout", "stderr"), strict=True)):
        os.dup2(file, own)
        os.close(file)
        _replace(own, name)
    sys.argv, sys.orig_argv, sys.path[0] = request["command"][2:], request["command"], request["directory"]


def _replace(file: int, name: str) -> None:
    """Make the stream of a standard file, as Python does when it starts."""
    old = getattr(sys, name)
    unbuffered, writes = old.write_through, file > 0
    binary = open(file, "wb" if writes else "rb", 0 if writes and unbuffered else -1, closefd=False)  # noqa: SIM115
    new = io.TextIOWrapper(binary, old.encoding, old.errors, "\n" if writes else None, write_through=unbuffered)
    new.reconfigure(line_buffering=not unbuffered and (name == "stderr" or new.isatty()))
    setattr(sys, name, new)
    setattr(sys, f"__{name}__", new)


if __name__ == "__main__":
    known = _prepare(sys.argv[2:])
    if chosen := _serve(socket.socket(fileno=int(sys.argv[1]))):
        _begin(chosen, known)
