"""Workers whose handlers run in processes, as programs that end with `worker.run()`: over XMPP and HTTP, until a signal."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path

import psutil
import pytest

from stanzaq import Publisher
from tests.journeys.conftest import Account, Join
from tests.waiting import PATIENCE_SECONDS

_PROGRAM = """
import os, signal, time
from stanzaq import Job, Retry, Worker

worker = Worker(**{user!r}, concurrency=3, grace=1)

@worker.task({node!r}, run_in="process", retry=Retry(delay="0s"))
def work(job: Job[str]) -> None:
    if job.payload == "dies":
        # Once the others run as well.
        while len(os.listdir({places!r})) < 3:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    open(os.path.join({places!r}, job.id), "x").close()
    if job.payload == "waits":
        time.sleep(3600)
    while job.payload == "stays" and len(os.listdir({places!r})) < 4:
        time.sleep(0.01)
    # At once: two processes write there.
    os.write(1, ("%s %d" % (job.payload, job.attempt) + os.linesep).encode())

worker.run()
"""

_STARTS = {
    "program": (sys.executable, "tasks.py"),
    "command": (str(Path(sys.executable).with_name("stanzaq")), "worker", "tasks:worker"),
}


_DIFFERENT = {("xmpp", "program", signal.SIGTERM), ("http", "command", signal.SIGKILL)}
"""Each transport, start and signal once."""

_WAYS = [
    pytest.param(*way, marks=() if way in _DIFFERENT else pytest.mark.soak)
    for way in product(("xmpp", "http"), _STARTS, (signal.SIGTERM, signal.SIGKILL))
]


@asynccontextmanager
async def running(user: Account, node: str, place: Path, how: str) -> AsyncIterator[Process]:
    """Run the program of a worker meanwhile."""
    places = place / "places"
    places.mkdir()
    (place / "tasks.py").write_text(_PROGRAM.format(user=user, node=node, places=str(places)))
    process = await asyncio.create_subprocess_exec(*_STARTS[how], cwd=place, stdout=PIPE, stderr=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.mark.parametrize(("user", "started", "number"), _WAYS, indirect=["user"])
async def test_children_are_no_workers(
    user: Account, join: Join, tmp_path: Path, started: str, number: signal.Signals
) -> None:
    """Issue 48.2: the program's last line is `worker.run()`, its children run jobs alone and end with it, however it ends."""
    owner = await join()
    node = await owner.queue({"pubsub#publish_model": "open", "pubsub#access_model": "open"})
    async with running(user, node, tmp_path, started) as process, Publisher(**user) as publisher:
        await publisher.publish(node, "fine")
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS) == b"fine 1\n"
        await publisher.publish(node, "waits", id="waits")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (tmp_path / "places" / "waits").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        # One connection is the parent's: no child has subscribed.
        assert [each.pid for each in children if each.net_connections("tcp")] == []
        process.send_signal(number)
        _output, errors = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
        _gone, alive = await asyncio.to_thread(psutil.wait_procs, children, 5)
    assert not alive and b"Traceback" not in errors


@pytest.mark.parametrize("user", ["xmpp", pytest.param("http", marks=pytest.mark.soak)], indirect=True)
async def test_a_death_costs_one_job(user: Account, join: Join, tmp_path: Path) -> None:
    """Issue 48.5: a handler that is killed fails alone: its neighbours go on in their processes and lose no attempt."""
    owner = await join()
    node = await owner.queue(
        {"pubsub#publish_model": "open", "pubsub#access_model": "open", "stanzaq#max_deliveries": "3"}
    )
    async with running(user, node, tmp_path, "program") as process, Publisher(**user) as publisher:
        for item in ("stays", "stays", "dies"):
            await publisher.publish(node, item)
        (tmp_path / "places" / "two").touch()
        async with asyncio.timeout(PATIENCE_SECONDS):
            # The first dead letter makes the node.
            while (await owner.pubsub(f"<items node='{node}/dead'/>", "get")).error:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        (tmp_path / "places" / "last").touch()
        assert process.stdout is not None
        lines = [await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS) for _ in range(2)]
        process.terminate()
        _output, errors = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    assert lines == [b"stays 1\n"] * 2
    assert errors.count(b"WARNING job failed: ") == 3
