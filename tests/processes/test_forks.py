"""Programs that tests fork from a server: each is as if a new interpreter had started it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from frontends.tools.servers.process import Process
from tests.forks import Forks

ROOT = Path(__file__).resolve().parents[2]
MODULE = "tests.processes.shown"
COMMAND = [sys.executable, "-m", MODULE]

_STARTER = f"""
import signal
from pathlib import Path
from frontends.tools.servers.process import Process
from tests.forks import Forks

with Forks([{MODULE!r}], []) as forks:
    program = Process({[*COMMAND, "wait"]}, directory=Path.cwd(), log=Path("/dev/null"))
    print(program.pid, forks._server.pid, flush=True)
    signal.pause()
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """Provide a server for this program alone."""
    with Forks([MODULE], []) as forks:
        yield forks


@contextmanager
def waiting(*command: str, **options: Any) -> Iterator[subprocess.Popen[str]]:  # noqa: ANN401  (of Popen)
    """Start a program that waits, and read until it does."""
    with subprocess.Popen([*command, "wait"], stdout=subprocess.PIPE, text=True, **options) as program:
        try:
            yield program
        finally:
            program.kill()


def forked(pid: int) -> bool:
    """Tell by the kernel's command line of a process."""
    return "tests.fork_server" in psutil.Process(pid).cmdline()


def shown(out: str) -> dict[str, Any]:
    """Read what the program found."""
    return dict(json.loads(out.splitlines()[0]))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"start_new_session": True},
        {"env": {"STANZAQ_DOMAIN": "ä", "COLUMNS": "33"}},
        {"stdin": subprocess.PIPE},
        {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT},
    ],
    ids=["plain", "session", "environment", "pipe", "files"],
)
def test_as_a_new_process(forks: Forks, options: dict[str, Any]) -> None:
    """It finds what a new process would, whatever it is given."""
    # Otherwise a new interpreter also gets what the readline library sets, unknown to `os.environ`.
    options = {**options, "env": {**os.environ, **options.get("env", {})}}
    found = []
    for start in (nullcontext, forks.suspended):
        with start(), waiting(*COMMAND, **options) as program:
            assert program.stdout is not None
            found.append(shown(program.stdout.readline()))
            assert forked(program.pid) == (start is nullcontext)
    assert found[0] == found[1]


def _complete(log: Path) -> bool:
    return log.read_text().count("\n") > 1


def test_dies_with_its_starter(forks: Forks, tmp_path: Path) -> None:
    """It has the parent-death signal, a session and a directory of its own, and a file for its output."""
    found = []
    for start in (nullcontext, forks.suspended):
        log = tmp_path / start.__name__
        with start():
            process = Process([*COMMAND, "wait"], directory=ROOT, log=log, environment=os.environ)
        process.wait_until(partial(_complete, log), 60)
        found.append(shown(log.read_text()))
        assert forked(process.pid) == (start is nullcontext)
        process.kill()
    assert found[0] == found[1] and found[0]["dying"] == signal.SIGKILL and found[0]["leads"]


def test_its_starter_is_killed() -> None:
    """Then the program dies, and the server ends."""
    with subprocess.Popen([sys.executable, "-c", _STARTER], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pids = map(int, starter.stdout.readline().split())
        started = [psutil.Process(pid) for pid in pids]
        starter.kill()
    assert len(started) == 2
    _, alive = psutil.wait_procs(started, 60)
    assert not alive


def test_a_program_of_a_program(forks: Forks) -> None:
    """A program that starts others has them forked, too: they are its children, and end with it, as their server does."""
    with waiting(*COMMAND, "start") as program:
        assert program.stdout is not None
        _found, _random, pid = (program.stdout.readline() for _ in range(3))
        started = psutil.Process(program.pid).children()
        assert len(started) == 2 and int(pid) in {one.pid for one in started}
        assert forked(int(pid))
    _, alive = psutil.wait_procs(started, 60)
    assert not alive


def test_end(forks: Forks) -> None:
    """Its exit code, output and errors are its own."""
    done = subprocess.run(
        [*COMMAND, "read", "complain", "7"], input="said", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.splitlines()[2], done.stderr) == (7, "said", "complaint\n")
    failed = subprocess.run([*COMMAND, "fail"], capture_output=True, text=True, check=False)
    assert failed.returncode == 1 and failed.stderr.endswith("ValueError: fail\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_signal(forks: Forks, number: signal.Signals) -> None:
    """A signal reaches the program itself."""
    with waiting(*COMMAND, stderr=subprocess.DEVNULL) as program:
        assert program.stdout is not None and program.stdout.readline() and program.stdout.readline()
        assert program.poll() is None and forked(program.pid)
        program.send_signal(number)
        assert program.wait(60) == -number


async def test_asyncio(forks: Forks) -> None:
    """A start by asyncio is covered."""
    program = await asyncio.create_subprocess_exec(*COMMAND, "wait", stdout=asyncio.subprocess.PIPE)
    try:
        assert program.stdout is not None and await program.stdout.readline() and forked(program.pid)
    finally:
        program.terminate()
        assert await program.wait() == -signal.SIGTERM


def test_apart(forks: Forks) -> None:
    """Several at once are apart: each begins as the first did, with other random numbers."""

    def run(code: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*COMMAND, str(code)], stdout=subprocess.PIPE, text=True, check=False)

    with ThreadPoolExecutor(3) as threads:
        done = list(threads.map(run, range(9)))
    assert [one.returncode for one in done] == list(range(9))
    found = [shown(one.stdout) for one in done]
    for code, one in enumerate(found):
        assert one.pop("argv")[1:] == one.pop("command")[3:] == [str(code)]
    assert all(one == found[0] for one in found)
    assert len({one.stdout.splitlines()[1] for one in done}) == 9


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["-c", "import signal; signal.pause()"], {}),
        (["-m", MODULE], {"env": {**os.environ, "LD_PRELOAD": "", "PYTHONHASHSEED": "1"}}),
        (["-m", MODULE], {"env": {"PATH": os.environ["PATH"]}}),
        (["-m", MODULE], {"pass_fds": [2]}),
        (["-m", MODULE], {"process_group": 0}),
    ],
    ids=["program", "variable", "empty", "files", "group"],
)
def test_by_an_interpreter(forks: Forks, words: list[str], options: dict[str, Any]) -> None:
    """A new interpreter starts what the server may not have prepared."""
    with waiting(sys.executable, *words, **options) as program:
        assert not forked(program.pid)


def test_another_tree(forks: Forks, tmp_path: Path) -> None:
    """In a directory with a tree of its own a new interpreter imports that."""
    (tmp_path / "frontends").mkdir()
    with waiting(*COMMAND, cwd=tmp_path, stderr=subprocess.DEVNULL) as program:
        assert not forked(program.pid)


def test_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server with threads forks nothing: what they hold would be held for ever."""
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Forks([MODULE], ["threaded"]), pytest.raises((OSError, ValueError)):
        subprocess.run(COMMAND, check=False)
