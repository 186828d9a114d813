"""Programs with a worker whose jobs do not end: they are told of it, and end all the same, by signals."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Final

import pytest

from tests.waiting import PATIENCE_SECONDS

_PROGRAM: Final = """
import asyncio, sys, time
from datetime import UTC, datetime, timedelta
from stanzaq import Job, StanzaqError, Worker, schemes
from stanzaq.worker import callers, runs, stopping, worker as working
from stanzaq.transport.interface import Content, Delivery, Lock

if sys.argv[1] in ("ignores", "refused"):
    runs.SETTLE_SECONDS = callers.SETTLE_SECONDS = 0.2
if sys.argv[1] == "blocks":
    working._END_SECONDS = stopping._BLOCKED_SECONDS = 0.2

class Service:
    async def run(self, receiver, nodes, prepare):
        now, content = datetime.now(UTC), Content(b"{}", "application/json")
        for item in ("one", "two", "three")[:3 if sys.argv[1] == "blocks for a while" else 1]:
            receiver.deliver(Delivery(Lock("jobs", item, 7), 1, 20, now, content, {}, "", now))
        await asyncio.sleep(0.5 if sys.argv[1] == "refused" else 3600)
        raise StanzaqError("the server refuses worker@example.org")

    async def acknowledge(self, lock, result=None, then=()):
        print("acknowledged", flush=True)
        return True

    async def release(self, lock, how):
        print("untried" if how.untried else "returned", flush=True)
        return True

    async def renew(self, lock, progress=None, *, begun=False):
        return datetime.now(UTC) + timedelta(seconds=60)

    async def lock_seconds(self, node):
        return 60.0

    async def pause(self): pass
    async def close(self): pass
    def sender(self): pass

async def ignores(job: Job) -> None:
    print("begins", flush=True)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

async def blocks(job: Job) -> None:
    print("begins", flush=True)
    time.sleep(3600)

async def blocks_for_a_while(job: Job) -> None:
    print("begins", flush=True)
    time.sleep(1)

def sleeps(job: Job) -> None:
    print("begins", flush=True)
    time.sleep(3600)

schemes.worker = lambda account, **_: Service()
if __name__ == "__main__":
    worker = Worker("xmpp://worker@example.org", password="x", grace=0.1)
    handler, run_in = {
        "ignores": (ignores, None), "refused": (ignores, None), "blocks": (blocks, None), "thread": (sleeps, None),
        "process": (sleeps, "process"), "blocks for a while": (blocks_for_a_while, None),
    }[sys.argv[1]]
    worker.task("jobs", run_in=run_in)(handler)
    worker.run()
"""


_FINISHED: Final = b"acknowledged\nuntried\nuntried\n"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Write a program whose service hands out one item."""
    path = tmp_path / "program.py"
    path.write_text(_PROGRAM)
    return path


async def begun(program: Path, kind: str) -> Process:
    """Start a program with a handler of this kind, and wait until that runs."""
    process = await asyncio.create_subprocess_exec(sys.executable, program, kind, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"begins\n"
    return process


@pytest.mark.parametrize(
    ("kind", "signals", "code", "said"),
    [
        ("ignores", 1, 0, "let asyncio.CancelledError pass node=jobs item=one attempt=1 token=7"),
        ("ignores", 2, 0, "let asyncio.CancelledError pass node=jobs item=one attempt=1 token=7"),
        ("thread", 1, 0, "a longer grace lets it end node=jobs item=one attempt=1 token=7"),
        ("process", 1, 0, "a longer grace lets it end node=jobs item=one attempt=1 token=7"),
        ("blocks", 1, 1, "stanzaq: ended by force: a coroutine blocks the event loop"),
        ("blocks", 2, 1, "stanzaq: ended by force: a coroutine blocks the event loop"),
        ("blocks for a while", 1, 0, "stopping; a second signal ends running jobs at once"),
        ("refused", 0, 1, "stanzaq: the server refuses worker@example.org"),
    ],
)
async def test_it_ends(program: Path, kind: str, signals: int, code: int, said: str) -> None:
    """A worker ends after its grace, or by the second signal, whatever its jobs do; it says what kept it from ending."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        process = await begun(program, kind)
        # Two of one kind that come together may be taken for one.
        for each in (signal.SIGTERM, signal.SIGINT)[:signals]:
            process.send_signal(each)
        output, errors = await process.communicate()
    assert process.returncode == code and said in errors.decode()
    assert "Traceback" not in errors.decode()
    # One that does not end by itself is not waited for: the service gives its item to others when the worker leaves.
    # From the signal on nothing begins, also while a handler blocks the loop.
    assert output == {"thread": b"returned\n", "process": b"returned\n", "blocks for a while": _FINISHED}.get(kind, b"")


async def test_processes_end_with_it(program: Path) -> None:
    """When a worker is killed, the processes of its jobs end too."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        process = await begun(program, "process")
        process.kill()
        # It is inherited by the process of the job.
        assert process.stdout is not None and await process.stdout.read() == b""
        await process.communicate()
