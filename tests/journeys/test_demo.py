"""`stanzaq demo` keeps the promises of design §3 and §4, on real servers, and leaves nothing behind however it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.forks import Forks
from tests.waiting import PATIENCE_SECONDS

_KEYS = {
    "published",
    "delivered",
    "acknowledged",
    "redelivered",
    "duplicates",
    "queued",
    "lost",
    "jobs_per_s",
    "latency_ms",
}
_ENDLESS = ("--items", "1000000")


@contextmanager
def _demo(place: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run the demo with its temporary files in `place`."""
    with subprocess.Popen(
        [sys.executable, "-m", "frontends.cli", "demo", "--json", *options],
        env={**os.environ, "TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        try:
            yield demo
        finally:
            demo.kill()


def _summary(place: Path, *options: str) -> dict[str, Any]:
    with _demo(place, *options) as demo:
        shown, told = demo.communicate(timeout=PATIENCE_SECONDS)
    assert demo.returncode == 0, told
    # With --json nothing else is on stdout.
    summary: dict[str, Any] = json.loads(shown)
    return summary


def _living(place: Path) -> list[tuple[int, Path]]:
    """Return the processes that work in `place`, which every server of the demo does, each with its directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            directory = (process / "cwd").readlink()
        except OSError:
            continue
        if directory.is_relative_to(place):
            found.append((int(process.name), directory))
    return found


def _frontends(place: Path) -> list[int]:
    return [pid for pid, directory in _living(place) if _is_frontend(directory)]


def _is_frontend(directory: Path) -> bool:
    return directory.name.startswith("stanzaq-frontend-")


def _eventually(happens: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_nothing_lost(tmp_path: Path) -> None:
    """Every item is published, delivered and acknowledged once; the service holds none of them in the end."""
    summary = _summary(tmp_path, "--items", "300", "--workers", "3", "--credit", "4")
    assert summary.keys() == _KEYS
    assert summary["published"] == summary["acknowledged"] == summary["delivered"] == 300
    assert summary["lost"] == summary["queued"] == summary["duplicates"] == summary["redelivered"] == 0
    assert 0 < summary["latency_ms"]["p50"] <= summary["latency_ms"]["p99"]
    assert _living(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.soak
def test_killed_frontend(tmp_path: Path) -> None:
    """With one of two frontends killed half-way nothing is lost, and its unsent deliveries come within 5 s (guarantee 4)."""
    summary = _summary(tmp_path, "--items", "300", "--kill")
    assert summary.keys() == _KEYS | {"killed", "resent_within_s"}
    assert summary["published"] == summary["acknowledged"] == 300
    assert summary["lost"] == summary["queued"] == 0
    assert summary["killed"] == 1
    # Four times the guarantee, for a busy machine.
    assert summary["resent_within_s"] < 20
    assert _living(tmp_path) == []


def test_kill_needs_two(tmp_path: Path) -> None:
    """Killing the only frontend is refused."""
    with _demo(tmp_path, "--kill", "--frontends", "1") as demo:
        shown, told = demo.communicate(timeout=PATIENCE_SECONDS)
    assert (demo.returncode, shown) == (2, "")
    assert "--frontends 2" in told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill -9"])
def test_leaves_no_process(number: signal.Signals, tmp_path: Path, forks: Forks) -> None:
    """However the demo ends, its servers end with it; after Ctrl-C its files are gone too."""
    # What is killed without warning was started as its users start it.
    with forks.suspended() if number is signal.SIGKILL else nullcontext(), _demo(tmp_path, *_ENDLESS) as demo:
        # Each frontend has a watchdog; the second one starts last of all.
        _eventually(lambda: len(_frontends(tmp_path)) == 4)
        demo.send_signal(number)
        demo.communicate(timeout=PATIENCE_SECONDS)
    _eventually(lambda: not _living(tmp_path))
    if number is signal.SIGINT:
        assert demo.returncode == 130
        assert list(tmp_path.iterdir()) == []


@pytest.mark.soak
def test_dead_frontend_is_told(tmp_path: Path) -> None:
    """A frontend that ends unasked ends the demo, with the end of that frontend's log."""
    with _demo(tmp_path, *_ENDLESS) as demo:
        _eventually(lambda: len(_frontends(tmp_path)) == 4)
        # The first one is ready by now; its watchdog, which tolerates this, is in the same directory.
        first = min(
            (place for _, place in _living(tmp_path) if _is_frontend(place)), key=lambda place: place.stat().st_mtime
        )
        for pid, place in _living(tmp_path):
            if place == first:
                os.kill(pid, signal.SIGTERM)
        _, told = demo.communicate(timeout=PATIENCE_SECONDS)
    assert demo.returncode == 2
    assert "a frontend ended by itself" in told


def test_not_installed(tmp_path: Path) -> None:
    """Without ejabberd the demo ends with one line that says what to install."""
    command = [sys.executable, "-m", "frontends.cli", "demo"]
    done = subprocess.run(
        command,
        env={"PATH": "", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 2
    assert "apt-get install ejabberd" in done.stderr
    assert "Traceback" not in done.stderr
