"""A copy of the data is put back while frontends run: what docs/operations.md says is gone, is as before, or goes on."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import redis.asyncio as aioredis

from broker import codec
from broker.model.commands import (
    Affiliate,
    Bind,
    Browse,
    Commit,
    Complete,
    Configure,
    Declare,
    Delete,
    Describe,
    Publish,
    PutSchedule,
    Read,
    ReadOutcome,
    Subscribe,
)
from broker.model.items.hints import NO_HINTS, Hints
from broker.model.items.items import Envelope
from broker.model.items.outcomes import ReplyMode
from broker.model.names import Jid, bare_jid
from broker.model.nodes.schedules import Schedule
from broker.model.results import (
    Bound,
    Browsed,
    Declared,
    Described,
    Done,
    Ended,
    Published,
    Refused,
    Replay,
    Retracted,
    Scheduled,
    Subscribed,
)
from broker.redis_core.commands.internal import GONE
from broker.redis_core.core import RedisCore
from frontends.tools.servers.redis import RedisServer
from tests.contract.conftest import Door, MakeCore
from tests.contract.test_lost_second import losing, until
from tests.waiting import PATIENCE_SECONDS

ALICE, BOB, W1 = Jid("alice@x/home"), Jid("bob@x/b"), Jid("w1@x/a")
ITEM = codec.pack(Envelope(b"<x/>"))
KEPT = Hints(reply=ReplyMode.KEPT)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    """Run a Redis whose data can be put back."""
    with RedisServer(tmp_path / "redis") as server:
        yield server


async def declared(core: RedisCore, node: str, **options: str) -> None:
    """Create a node."""
    given = {f"stanzaq#{name}": (value,) for name, value in options.items()}
    assert await core.ask(Declare(node, ALICE, given)) == Declared(node)


async def published(core: RedisCore, node: str, item: str, hints: Hints = NO_HINTS) -> Published:
    """Publish an item."""
    done = await core.ask(Publish(node, ALICE, item, ITEM, 4, hints=hints))
    assert isinstance(done, Published), done
    return done


async def worked(core: RedisCore, node: str, doors: tuple[Door, Door], item: str) -> None:
    """Wait until the worker has an item that it had not before, and complete it."""
    await until(lambda: any(one.item_id == item for door in doors for one in door.deliveries))
    for door in doors:
        door.deliveries.clear()
    done = await core.ask(Complete(node, W1, item, envelope=ITEM, body_bytes=4))
    assert isinstance(done, Retracted), done


async def test_ids_and_results(server: RedisServer, make_core: MakeCore, node: str) -> None:
    """An id of after the copy is new; one of the copy is a repeat while its window lasts; results are those of the copy."""
    (core, door), (other, second) = await make_core(server.url), await make_core(server.url)
    doors, brief = (door, second), f"{node}-brief"
    for name, seconds in ((node, "600"), (brief, "1")):
        await declared(core, name, dedupe="ignore", dedupe_seconds=seconds)
        assert isinstance(await core.ask(Subscribe(name, W1, W1, 5)), Subscribed)
        await published(other, name, "copied", KEPT)
        await worked(core, name, doors, "copied")
    async with losing(server, core, other):
        await published(core, node, "lost", KEPT)
        await worked(other, node, doors, "lost")
        assert isinstance(await core.ask(ReadOutcome(node, ALICE, "lost")), Ended)
        await asyncio.sleep(1)
    for frontend in (core, other):
        kept = await frontend.ask(ReadOutcome(node, ALICE, "copied"))
        assert isinstance(kept, Ended) and kept.outcome and kept.outcome.envelope == ITEM
        assert await frontend.ask(ReadOutcome(node, ALICE, "lost")) == Ended(None)
    assert (await published(other, node, "copied")).duplicate
    for name, item in ((node, "lost"), (brief, "copied")):
        assert not (await published(core, name, item)).duplicate
        await worked(other, name, doors, item)
    assert not door.deliveries and not second.deliveries


async def test_nodes(server: RedisServer, make_core: MakeCore, node: str) -> None:
    """Nodes, options and rights are those of the copy, also for frontends that knew of the later ones."""
    cores = [(await make_core(server.url))[0] for _ in range(2)]
    deleted, created = f"{node}-deleted", f"{node}-created"
    for name in (node, deleted):
        await declared(cores[0], name)
    async with losing(server, *cores):
        assert await cores[0].ask(Configure(node, ALICE, {"stanzaq#lock_seconds": ("7",)})) == Done()
        assert await cores[1].ask(Affiliate(node, ALICE, {bare_jid(BOB): "owner"})) == Done()
        assert await cores[0].ask(Delete(deleted, ALICE)) == Done()
        await declared(cores[1], created)
        for core in cores:
            assert isinstance(await core.ask(Publish(created, ALICE, None, ITEM, 4)), Published)
    for core in cores:
        assert await core.ask(Publish(created, ALICE, None, ITEM, 4)) == GONE
        assert isinstance(await core.ask(Publish(deleted, ALICE, None, ITEM, 4)), Published)
        assert isinstance(await core.ask(Publish(node, ALICE, None, ITEM, 4)), Published)
        found = await core.ask(Describe(node, ALICE, as_owner=True))
        assert isinstance(found, Described)
        assert found.record.config.lock_seconds == 60 and found.record.affiliations.keys() == {bare_jid(ALICE)}


async def test_readers(server: RedisServer, make_core: MakeCore, node: str) -> None:
    """A log is read on from where its reader was in the copy; new entries and fences are above all that were lost."""
    core, door = await make_core(server.url)
    asked = {"{urn:xmpp:pubsub:queueing:0}enabled": ("0",)}
    assert await core.ask(Declare(node, ALICE, asked)) == Declared(node)
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 1, partitions=(0,))), Subscribed)
    for item in ("a", "b"):
        await published(core, node, item)
    await door.until(lambda: len(door.deliveries) == 1)

    async def read() -> Replay:
        found = await core.ask(Read(node, ALICE, 0, "@earliest", 50))
        assert isinstance(found, Replay)
        return found

    def came(item: str) -> bool:
        return any(each.item_id == item for each in door.deliveries)

    async def bound(jid: Jid, epoch: int) -> Bound:
        found = await core.ask(Bind(node, jid, 0, "audit", epoch))
        assert isinstance(found, Bound), found
        return found

    copied = [each.offset for each in (await read()).events]
    first = await bound(ALICE, 1)
    async with losing(server, core):
        await published(core, node, "lost")
        lost = (await read()).latest
        assert await core.ask(Commit(node, W1, 0, copied[0])) == Done()
        await door.until(lambda: len(door.deliveries) == 2)
        second = await bound(ALICE, 2)
    await published(core, node, "c")
    events = (await read()).events
    assert [each.item_id for each in events] == ["a", "b", "c"] and [each.offset for each in events[:2]] == copied
    assert events[2].offset > lost
    # The copy's owner reads on, whoever came later does not; the next has the same epoch, and a larger fence.
    assert isinstance(await core.ask(Read(node, ALICE, 0, "@earliest", 1, "audit", first.fence)), Replay)
    assert isinstance(await core.ask(Read(node, ALICE, 0, "@earliest", 1, "audit", second.fence)), Refused)
    assert (third := await bound(ALICE, 2)).epoch == second.epoch and third.fence > second.fence
    door.deliveries.clear()
    for offset, item in zip(copied, "bc", strict=True):
        assert not came(item) and await core.ask(Commit(node, W1, 0, offset)) == Done()
        await door.until(partial(came, item))


async def test_schedules(server: RedisServer, make_core: MakeCore, node: str) -> None:
    """Frontends that run on publish again, once each, for the times that are less than a minute late, under the same ids."""
    (core, door), (other, second) = await make_core(server.url), await make_core(server.url)
    await declared(core, node)
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 100)), Subscribed)
    schedule = Schedule.read({"id": "s", "every": "1s", "catchup": "none"})
    assert isinstance(await core.ask(PutSchedule(node, ALICE, schedule, ITEM, 4)), Scheduled)

    seen = set[str]()

    def given() -> list[str]:
        locks = {(each.item_id, each.token) for each in (*door.deliveries, *second.deliveries)}
        return sorted(item for item, _ in locks if item not in seen)

    # The next time is a second away, so the copy has none of what comes then.
    await until(given)
    seen.update(given())
    async with losing(server, core, other):
        await until(given)
        lost = given()
        for each in (door, second):
            each.deliveries.clear()
    await until(lambda: len(given()) > len(lost))
    again = given()
    assert again[: len(lost)] == lost and len(set(again)) == len(again)


async def test_a_snapshot_in_place_of_append_only_files(make_core: MakeCore, node: str, tmp_path: Path) -> None:
    """A Redis that reads only its append-only files gets a snapshot as the page says, and has it after the next restart."""
    place, copy = tmp_path / "redis", tmp_path / "dump.rdb"
    append = {"appendonly": "yes", "repl-diskless-sync-delay": "0"}
    with RedisServer(place, options=append) as server:
        core, _ = await make_core(server.url)
        await declared(core, node)
        await published(core, node, "copied")
        snapshot = await asyncio.create_subprocess_exec("redis-cli", "-s", str(server.socket), "--rdb", str(copy))
        assert await snapshot.wait() == 0
        await published(core, node, "lost")
    shutil.copy(copy, place)
    with RedisServer(place, options={"appendonly": "no"}) as server:
        async with aioredis.Redis.from_url(server.url) as client:
            await client.config_set("appendonly", "yes")
            await until_rewritten(client)
    with RedisServer(place, options=append):
        await until(lambda: not core.healthy())
        found = await core.ask(Browse(node, ALICE, (), 10))
        assert isinstance(found, Browsed) and [each.item_id for each in found.items] == ["copied"]


async def until_rewritten(client: "aioredis.Redis") -> None:
    """Wait until Redis has written its append-only files."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await client.info("persistence"))["aof_rewrite_in_progress"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
