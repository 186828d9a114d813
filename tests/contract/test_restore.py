"""`stanzaq restore`: a copy of the data is put back; locks and tokens of after the copy are refused, schedules go on from now."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio as aioredis

from broker import keys
from broker.model.commands import Declare, Describe, Publish, PutSchedule, Renew, Retract, Subscribe
from broker.model.names import Jid
from broker.model.nodes.schedules import Schedule
from broker.model.problems import Problem
from broker.model.results import Declared, Described, Published, Refused, Retracted, Scheduled, Subscribed
from frontends.tools.servers.redis import RedisServer
from stanzaq.errors import Fenced
from stanzaq.fencing import Fence, Mark
from tests.contract.conftest import MakeCore
from tests.contract.shell import Shell
from tests.waiting import PATIENCE_SECONDS

ALICE, W1 = Jid("alice@x/home"), Jid("w1@x/a")
HOUR = 3_600_000


@pytest.fixture
def server(tmp_path: Path) -> Any:  # noqa: ANN401  (a generator's)
    """Run a Redis whose data can be put back."""
    with RedisServer(tmp_path / "redis") as server:
        yield server


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "running"])
async def test_late_workers_are_refused(server: RedisServer, make_core: MakeCore, node: str, *, stopped: bool) -> None:
    """Issue 56: what a worker was given after the copy was made is refused, by the queue and by a fence, and comes again.

    Frontends were stopped, as they should be, or run on.
    """
    core, door = await make_core(server.url)
    assert await core.ask(Declare(node, ALICE, {"stanzaq#lock_seconds": ("600",)})) == Declared(node)
    for name in ("a", "b"):
        assert isinstance(await core.ask(Publish(node, ALICE, name, b"payload", 7)), Published)
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 1)), Subscribed)
    await door.until(lambda: len(door.deliveries) == 1)
    async with aioredis.Redis.from_url(server.url) as client:
        await client.save()
    kept = door.deliveries[0]
    assert isinstance(await core.ask(Retract(node, W1, "a", kept.token)), Retracted)
    await door.until(lambda: len(door.deliveries) == 2)
    late = door.deliveries[1]
    if stopped:
        await core.stop()
    server.kill()
    server.start()
    looked, done = await Shell(server.url).several(("restore", "--check"), ("restore", "--json"))
    assert looked.code == 0 and "tokens of 1 partitions would begin above" in looked.err, looked
    assert looked.out.splitlines()[1].split("\t")[:3] == [node, "1", "1"]
    assert done.json["nodes"] == [{"node": node, "waiting": 1, "in_flight": 1, "schedules": []}]
    if stopped:
        core, door = await make_core(server.url)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while core.healthy():  # noqa: ASYNC110  (a heartbeat tells nobody)
            await asyncio.sleep(0.02)
    for command in (Retract(node, W1, late.item_id, late.token), Renew(node, W1, late.item_id, late.token)):
        refused = await core.ask(command)
        assert isinstance(refused, Refused) and refused.problem in {Problem.FORBIDDEN, Problem.LOCK_LOST}
    # The lock that the copy has still holds, and its item comes again.
    assert isinstance(await core.ask(Retract(node, W1, "a", kept.token)), Retracted)
    await door.until(lambda: any(each.item_id == "b" and each != late for each in door.deliveries))
    again = next(each for each in door.deliveries if each.item_id == "b" and each != late)
    assert again.token > late.token
    with redis.Redis.from_url(server.url) as store:
        with Fence(store, Mark.make(node, "orders", "b", again.token)) as pipe:
            pipe.set("b", "again")
        with pytest.raises(Fenced), Fence(store, Mark.make(node, "orders", "b", late.token)) as pipe:
            pipe.set("b", "late")
        assert store.get("b") == b"again"
    await core.stop()


async def test_nothing_to_restore(server: RedisServer) -> None:
    """An empty Redis has nothing that differs."""
    (done,) = await Shell(server.url).several(("restore", "--json"))
    assert (done.json["partitions"], done.json["nodes"]) == (0, [])


async def test_schedules_go_on_from_now(server: RedisServer, make_core: MakeCore, node: str) -> None:
    """Issue 56: schedules of a copy that is hours old go on from now, by their `catchup`; `--check` changes nothing."""
    core, _ = await make_core(server.url)
    assert await core.ask(Declare(node, ALICE, {})) == Declared(node)
    for rule in ("none", "last", "all"):
        schedule = Schedule.read({"id": rule, "every": "1h", "catchup": rule})
        assert isinstance(await core.ask(PutSchedule(node, ALICE, schedule, b"item", 4)), Scheduled)
    described = await core.ask(Describe(node, ALICE, as_owner=True))
    assert isinstance(described, Described)
    await core.stop()
    key = keys.of_partition("schedules", described.record.partition(0))
    async with aioredis.Redis.from_url(server.url) as client:
        for name, text in (await client.hgetall(key)).items():
            record = json.loads(text)
            moved = record | {each: record[each] - 7 * HOUR // 2 for each in ("anchor", "next")}
            await client.hset(key, name, json.dumps(moved))
        before = await client.hgetall(key)
        shell = Shell(server.url)
        behind = "import time; now = time.time; time.time = lambda: now() + 3600; from frontends.cli import app; app()"
        wrong = subprocess.run(  # noqa: ASYNC221
            [sys.executable, "-c", behind, "restore"], env=shell.environment, capture_output=True, check=False
        )
        assert wrong.returncode == 2 and b" s behind this machine's: set both right" in wrong.stderr
        (looked,) = await shell.several(("restore", "--check", "--json"))
        assert await client.hgetall(key) == before
        done, again = await shell.several(("restore", "--json"), ("restore", "--json"))
        after = {name: json.loads(text) for name, text in (await client.hgetall(key)).items()}
    assert looked.json["nodes"] == done.json["nodes"]
    moved = {each["schedule"]: each for each in done.json["nodes"][0]["schedules"]}
    assert {name: each["missed"] for name, each in moved.items()} == {"none": 3, "last": 2}
    # What is due is published by whoever stores it, or by a frontend later.
    served = {rule: record.get("last", {"at_ms": record["next"]})["at_ms"] for rule, record in after.items()}
    assert [round((served[rule] - served[b"all"]) / HOUR) for rule in (b"none", b"last")] == [3, 2]
    assert served[b"all"] == json.loads(before[b"all"])["next"]
    assert again.json["nodes"][0]["schedules"] == []
