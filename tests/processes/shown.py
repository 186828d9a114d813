"""A program for test_forks.py: it shows what it finds as a process, then what it is told to do."""

# ruff: noqa: T201  (a program)

import ctypes
import gc
import json
import os
import random
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from frontends.tools.servers.process import Process

_PR_GET_PDEATHSIG = 2
_POLL_SECONDS = 0.05


def _dying() -> int:
    found = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_PDEATHSIG, ctypes.byref(found))
    return found.value


def _found() -> dict[str, object]:
    """Return what must be the same, however the program is started."""
    main, status = sys.modules["__main__"], Path("/proc/self/status").read_text().splitlines()
    streams: tuple[Any, ...] = (sys.stdin, sys.stdout, sys.stderr)
    return {
        "argv": sys.argv,
        "command": sys.orig_argv,
        "path": sys.path,
        "flags": list(sys.flags),
        "main": [main.__name__, main.__file__, main.__package__, main.__dict__ is globals()],
        "environment": dict(os.environ),
        "directory": str(Path.cwd()),
        "files": sorted(int(file.name) for file in Path("/proc/self/fd").iterdir())[:-1],
        "streams": [
            [one.encoding, one.errors, one.line_buffering, one.write_through, one.newlines, type(one.buffer).__name__]
            for one in streams
        ],
        "own": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
        "parent": os.getppid(),
        "leads": os.getsid(0) == os.getpid(),
        "group": 0 if os.getpgrp() == os.getpid() else os.getpgrp(),
        "signals": [line for line in status if line.startswith(("SigQ", "SigP", "ShdP", "SigB", "SigI", "SigC"))][1:],
        "handler": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "dying": _dying(),
        "umask": next(line for line in status if line.startswith("Umask")),
        "limits": [resource.getrlimit(kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)],
        "threads": threading.active_count(),
        "collects": [gc.isenabled(), gc.get_threshold()],
    }


if __name__ == "__main__":
    print(json.dumps(_found()))
    print(random.random(), flush=True)
    for word in sys.argv[1:]:
        match word:
            case "read":
                print(sys.stdin.read())
            case "complain":
                print("complaint", file=sys.stderr)
            case "wait":
                # `signal.pause` would miss a signal that comes just before it, and wait for ever.
                while True:
                    time.sleep(_POLL_SECONDS)
            case "start":
                command = [sys.executable, "-m", "tests.processes.shown", "wait"]
                print(Process(command, directory=Path.cwd(), log=Path(os.devnull)).pid, flush=True)
            case "fail":
                raise ValueError(word)
            case _:
                os.environ["SEEN"] = sys.path[0] = word
                sys.exit(int(word))
