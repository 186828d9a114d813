"""Watchdog: a real process that hangs or is stopped is killed; one that works is left alone."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from tests.waiting import PATIENCE_SECONDS

# Starts more slowly than the watchdog waits, feeds it for three times as long as it waits, then says so and does nothing more.
_PROGRAM = """
import time
from frontends.watchdog import Watchdog

watchdog = Watchdog(0.5)
time.sleep(1.0)
watchdog.feed()
print("watched", flush=True)
until = time.monotonic() + 1.5
while time.monotonic() < until:
    watchdog.feed()
    time.sleep(0.05)
print("fed", flush=True)
{then}
"""


@contextmanager
def _program(then: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.format(then=then)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def _line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


def test_hung() -> None:
    """A process that starts slowly and feeds its watchdog lives; when it stops feeding it is killed."""
    with _program("time.sleep(600)") as program:
        assert (_line(program), _line(program)) == ("watched", "fed")
        assert program.wait(PATIENCE_SECONDS) == -signal.SIGKILL


def test_stopped() -> None:
    """A process under SIGSTOP is killed, though it can run nothing itself."""
    with _program("time.sleep(600)") as program:
        assert _line(program) == "watched"
        program.send_signal(signal.SIGSTOP)
        assert program.wait(PATIENCE_SECONDS) == -signal.SIGKILL


def test_orderly_end() -> None:
    """A process that dismisses its watchdog ends as it likes and leaves no child behind."""
    with _program("watchdog.stop(); raise SystemExit(7)") as program:
        assert _line(program) == "watched"
        (child,) = psutil.Process(program.pid).children()
        assert program.wait(PATIENCE_SECONDS) == 7
        assert not child.is_running()


def test_ends_with_its_parent() -> None:
    """The watchdog of a killed process ends by itself."""
    with _program("time.sleep(600)") as program:
        assert _line(program) == "watched"
        (child,) = psutil.Process(program.pid).children()
        end = os.pidfd_open(child.pid)
        program.kill()
        assert select.select([end], [], [], PATIENCE_SECONDS)[0]
        os.close(end)
