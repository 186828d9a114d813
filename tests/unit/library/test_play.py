"""Handlers of all kinds by chance, in workers that stop and die, on the service's core.

The ledger that the handlers keep is the model: nothing is acknowledged without an end of its work, and no attempt is counted
without a beginning, but for one item of each node of a worker that dies: the oldest that it held.
"""

import asyncio
import functools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from broker.model.commands import Declare, Stats, Unsubscribe
from broker.model.results import Counted
from stanzaq import Job, Retry, Worker
from stanzaq.publisher.publisher import make_item
from stanzaq.testing import broker as testing
from stanzaq.testing.core import _WORKER, OWNER, CoreTransport, ask
from stanzaq.transport.interface import Outgoing
from tests.waiting import PATIENCE_SECONDS

Paper = dict[str, Any]

_ENDS = ("returns", "raises", "later", "generator", "unsendable", "waits", "returns")
_LIMIT, _THREAD = "6", 4


def _note(job: Job[Paper], what: str) -> None:
    """Add a line to the ledger, from any thread or process; a short one is written whole."""
    file = os.open(job.payload["ledger"], os.O_APPEND | os.O_WRONLY)
    os.write(file, f"{what} {job.id} {job.attempt}\n".encode())
    os.close(file)


def _how(job: Job[Paper]) -> str:
    hows: list[str] = job.payload["hows"]
    return hows[min(job.attempt, len(hows)) - 1]


def _finish(job: Job[Paper]) -> Any:  # noqa: ANN401
    """End the work as its paper says."""
    match _how(job):
        case "raises":
            raise ValueError(job.id)
        case "later":
            raise Retry(delay=0)
        case "generator":
            return (number for number in range(3))
        case "dies" if job.payload["node"] == "process":
            os.kill(os.getpid(), signal.SIGKILL)
    _note(job, "end")
    return object() if _how(job) == "unsendable" else None


async def _work(job: Job[Paper], _more: str = "") -> Any:  # noqa: ANN401
    _note(job, "begin")
    await asyncio.sleep(0.2 if _how(job) == "waits" else 0.001)
    return _finish(job)


def _plain(job: Job[Paper]) -> Any:  # noqa: ANN401
    _note(job, "begin")
    time.sleep(0.2 if _how(job) == "waits" else 0.001)
    return _finish(job)


def _hidden(job: Job[Paper]) -> Awaitable[Any]:
    return _work(job)


def _worker() -> Worker:
    worker, retry = Worker("xmpp://w@example.org", password="x", concurrency=3, prefetch=5), Retry(delay=0)
    worker.task("loop", retry=retry)(_work)
    worker.task("partial", retry=retry)(functools.partial(_work, _more="!"))
    worker.task("hidden", retry=retry)(_hidden)
    worker.task("thread", retry=Retry(attempts=_THREAD, delay=0))(_plain)
    worker.task("process", retry=retry, run_in="process")(_plain)
    return worker


def _item(node: str, paper: Paper, name: str) -> Outgoing:
    return make_item(node, paper, id=name, key="", delay=0, priority=None, ttl=None, headers=None)


NODES = ("loop", "partial", "hidden", "thread", "process")


class _Service:
    """The service of one worker after another, over one database; each worker dies with its frontend, or stops."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.deaths = 0

    async def life(self, length: float, ends: str) -> None:
        """Run a worker for so long, or until nothing is left of its work."""
        worker, changed = _worker(), asyncio.Event()
        transport = CoreTransport(changed.set, "")
        transport.core = core = testing._Core(self._url, transport)
        await core.start()
        try:
            serving = asyncio.create_task(worker._serve(transport, worker._hooks, grace=random.choice((0, 0.1))))
            await transport.ready.wait()
            await asyncio.sleep(length)
            if ends == "drained":
                await self._drained(core)
            if ends == "dies":
                self.deaths += 1
                serving.cancel()
            worker.stop()
            await asyncio.wait({serving}, timeout=PATIENCE_SECONDS)
            for node in NODES if ends == "dies" else ():
                # As the service does when it sees that the worker is gone.
                await ask(core, "release", Unsubscribe(node, _WORKER, _WORKER, "", release=True))
        finally:
            await core.stop()

    async def begin(self, ledger: Path, count: int, chance: random.Random) -> list[str]:
        """Make the nodes and publish work of all kinds; return its ids."""
        transport = CoreTransport(lambda: None, "")
        transport.core = core = testing._Core(self._url, transport)
        await core.start()
        for node in NODES:
            options = {"stanzaq#max_deliveries": (_LIMIT,)}
            await ask(core, f"create {node}", Declare(node, OWNER, options))
        ids = list[str]()
        for number in range(count):
            node = chance.choice(NODES)
            hows = chance.choices((*_ENDS, *(["dies"] if node == "process" else [])), k=chance.randint(1, 7))
            ids.append(f"{node}-{number}")
            paper = {"ledger": str(ledger), "hows": hows, "node": node}
            await transport.send(_item(node, paper, ids[-1]))
        await core.stop()
        return ids

    async def _drained(self, core: testing._Core) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self._left(core):  # noqa: ASYNC110  (nobody is told)
                await asyncio.sleep(0.02)

    @staticmethod
    async def _left(core: testing._Core) -> int:
        left = 0
        for node in NODES:
            counted = await core.ask(Stats(node, OWNER))
            assert isinstance(counted, Counted)
            left += counted.waiting + counted.delayed + counted.in_flight + counted.dying
        return left

    async def dead(self) -> dict[str, int]:
        """Return the dead letters, each with the number of its attempts."""
        broker = testing.TestBroker(_worker())
        broker._core = core = testing._Core(self._url, CoreTransport(lambda: None, ""))
        await core.start()
        try:
            return {letter.id: letter.attempts for node in NODES for letter in await broker.dead(node)}
        finally:
            await core.stop()


_PLAYS = [(3, 10, 2), *(pytest.param(seed, 30, 4, marks=pytest.mark.soak) for seed in range(1, 30))]
"""Each with a seed, its number of items and that of its workers.

The first one has all nodes, deaths of processes and a dead letter.
"""


@pytest.mark.parametrize(("seed", "count", "lives"), _PLAYS)
async def test_play(seed: int, count: int, lives: int, tmp_path: Path) -> None:
    """Issue 48: whatever handlers and workers do, each item ends with its work, and each attempt had a beginning."""
    random.seed(seed)
    ledger, number = tmp_path / "ledger", await testing._databases.take()
    ledger.touch()
    try:
        service = _Service(testing._databases.url(number))
        ids = await service.begin(ledger, count, random.Random(seed))
        for ends in ("dies", *random.choices(("dies", "stops"), k=lives - 2)):
            await service.life(random.uniform(0.1, 0.8), ends)
        await service.life(0, "drained")
        dead = await service.dead()
    finally:
        testing._databases.give_back(number)
    begins, ended, early = Counter[str](), set[str](), Counter[str]()
    for line in ledger.read_text().splitlines():
        what, item, attempt = line.split()
        if what == "end":
            ended.add(item)
            continue
        assert not (item.startswith("thread") and int(attempt) > _THREAD)
        begins[item] += 1
        early[item] = max(early[item], int(attempt) - begins[item])
    for item, attempts in dead.items():
        early[item] = max(early[item], attempts - begins[item])
    assert set(ids) == ended | set(dead)
    # Each node judges by itself.
    assert early.total() <= service.deaths * len(NODES)
    assert ended
    # In others, what dies depends on when their workers do.
    assert dead or (seed, count, lives) != _PLAYS[0]
