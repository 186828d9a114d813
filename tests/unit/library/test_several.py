"""`stanzaq worker --processes N`: how its processes live, die and end."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.waiting import PATIENCE_SECONDS

_PROGRAM: Final = """
import asyncio, os, sys, time
from datetime import UTC, datetime, timedelta
from stanzaq import Job, StanzaqError, Worker, schemes
from stanzaq.transport.interface import Content, Delivery, Lock

KIND = os.environ["KIND"]

def say(word):
    # One write, whatever Python's buffers are: others write to the same pipe.
    os.write(1, f"{word} {os.getpid()}\\n".encode())

if KIND == "broken":
    raise ImportError("nothing like that")

class Service:
    async def run(self, receiver, nodes, *_more):
        if KIND == "refused":
            raise StanzaqError("the server refuses worker@example.org")
        now, content = datetime.now(UTC), Content(b"{}", "application/json")
        receiver.deliver(Delivery(Lock("jobs", "one", 7), 1, 20, now, content, {}, "", now))
        await asyncio.sleep(3600)

    async def acknowledge(self, lock, *_more):
        say("acknowledged")
        return True

    async def release(self, lock, how):
        say("returned")
        return True

    async def renew(self, lock, progress=None, *, begun=False):
        return datetime.now(UTC) + timedelta(seconds=60)

    async def lock_seconds(self, node):
        return 60.0

    def sender(self): pass
    async def pause(self): pass
    async def close(self): pass

schemes.worker = lambda account, **_: Service()
worker = Worker("xmpp://worker@example.org", password="x", grace=20)

@worker.task("jobs")
async def work(job: Job) -> None:
    say("begins")
    if KIND == "stops":
        worker.stop()
    # A short one ends when the test lets it: so it has not ended before the test looks.
    while KIND == "forever" or (KIND == "short" and not os.path.exists("go")):
        await asyncio.sleep(0.05)
"""


@asynccontextmanager
async def running(directory: Path, kind: str, count: int = 2) -> AsyncIterator[Process]:
    """Run the command meanwhile."""
    (directory / "program.py").write_text(_PROGRAM)
    command = [sys.executable, "-m", "stanzaq", "worker", "program:worker", "--processes", str(count)]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=directory, stdout=PIPE, stderr=PIPE, env=os.environ | {"KIND": kind}
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            _, errors = await process.communicate()
            # Of a test that has failed.
            print(errors.decode())  # noqa: T201


async def said(process: Process, word: str, count: int) -> list[int]:
    """Wait for so many lines with a word; return the processes that have written them."""
    assert process.stdout is not None
    found = list[int]()
    while len(found) < count and not process.stdout.at_eof():
        told, _, pid = (await process.stdout.readline()).decode().partition(" ")
        found += [int(pid)] if told == word else []
    return found


@pytest.mark.parametrize("each", [signal.SIGTERM, signal.SIGINT])
async def test_they_stop(tmp_path: Path, each: signal.Signals) -> None:
    """A signal lets all processes end their jobs, and then the command, in order."""
    async with running(tmp_path, "short", 2) as process:
        assert len(set(await said(process, "begins", 2))) == 2
        process.send_signal(each)
        (tmp_path / "go").touch()
        output, errors = await process.communicate()
    assert process.returncode == 0 and b"Traceback" not in errors
    assert b"returned" not in output


async def test_a_second_signal(tmp_path: Path) -> None:
    """The second one ends running jobs at once."""
    async with running(tmp_path, "forever", 2) as process:
        await said(process, "begins", 2)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        while b"stopping" not in await process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        output, errors = await process.communicate()
    assert process.returncode == 0 and b"Traceback" not in errors
    assert b"acknowledged" not in output


async def test_one_dies(tmp_path: Path) -> None:
    """A process that is killed is started again, and the others go on."""
    async with running(tmp_path, "forever", 2) as process:
        first, second = await said(process, "begins", 2)
        os.kill(first, signal.SIGKILL)
        (third,) = await said(process, "begins", 1)
        assert third not in {first, second} and psutil.pid_exists(second)
        for each in (signal.SIGTERM, signal.SIGINT):
            process.send_signal(each)
            await asyncio.sleep(0.5)
        _, errors = await process.communicate()
    assert b"a process of the worker was killed by SIGKILL: a new one starts in " in errors


@pytest.mark.parametrize(
    ("kind", "line"), [("broken", "nothing like that"), ("refused", "stanzaq: the server refuses worker@example.org")]
)
async def test_they_cannot_live(tmp_path: Path, kind: str, line: str) -> None:
    """What dies again and again ends the command with one line that says so, after what the processes have said."""
    async with running(tmp_path, kind, 1) as process:
        output, errors = await process.communicate()
    *before, last = errors.decode().splitlines()
    assert process.returncode == 1 and output == b""
    assert (
        last == "stanzaq: a process of the worker ended with exit code 1, 5 times within 10 s of its start: see above"
    )
    assert sum(line in each for each in before) >= 5


async def test_they_end_by_themselves(tmp_path: Path) -> None:
    """What ends in order is not started again; when all have ended, the command ends."""
    async with running(tmp_path, "stops", 2) as process:
        output, _ = await process.communicate()
    assert process.returncode == 0 and output.count(b"begins") == output.count(b"acknowledged") == 2


async def test_misuse(tmp_path: Path) -> None:
    """What no process can do is not tried again."""
    async with running(tmp_path, "short", 2) as process:
        (tmp_path / "program.py").write_text("")
        _, errors = await process.communicate()
    assert process.returncode == 2 and b"program has no stanzaq.Worker called worker" in errors


async def test_the_parent_is_killed(tmp_path: Path) -> None:
    """When the command itself is killed, its processes stop as they do for SIGTERM."""
    async with running(tmp_path, "short", 2) as process:
        pids = await said(process, "begins", 2)
        process.kill()
        (tmp_path / "go").touch()
        # It is inherited by the processes.
        output, errors = await process.communicate()
    assert output.count(b"acknowledged") == 2 and b"Traceback" not in errors
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids)
