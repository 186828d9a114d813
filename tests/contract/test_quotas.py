"""Quotas of owners and domains over a real server: nodes, items, bytes and publishes per second, with two frontends."""

import asyncio
import random
import time
from collections.abc import Sequence

import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from broker import codec, keys
from broker.model.commands import (
    Affiliate,
    Configure,
    Declare,
    Delete,
    ListQuotas,
    Publish,
    Purge,
    SetQuota,
    Stats,
)
from broker.model.items.items import Envelope
from broker.model.names import Jid, bare_jid
from broker.model.nodes.quotas import Quota, QuotaStatus
from broker.model.problems import Problem
from broker.model.results import Counted, Declared, Done, Published, Purged, QuotaList, Refused, Result
from broker.redis_core.core import RedisCore
from tests.contract.conftest import SOMEWHERE, MakeCore, Store
from tests.waiting import PATIENCE_SECONDS

ADMIN = Jid("root@x/home")
ALICE, BOB, EVE = Jid("alice@x/home"), Jid("bob@x/home"), Jid("eve@y/home")
BODY = codec.pack(Envelope(b"<x/>"))
LARGE = codec.pack(Envelope(b"<x>" + b"y" * 40_000 + b"</x>"))


async def made(make_core: MakeCore, **more: object) -> RedisCore:
    """Start a core with an administrator."""
    return (await make_core(admins=(bare_jid(ADMIN),), **more))[0]


async def limited(cores: Sequence[RedisCore], subject: str, **limits: str) -> None:
    """Set a quota, and let all frontends read it."""
    quota = Quota.read(limits) if limits else None
    assert await cores[0].ask(SetQuota(ADMIN, subject, quota)) == Done()
    for core in cores:
        await core._quotas.read()


async def declared(core: RedisCore, node: str, owner: Jid = ALICE, **options: str) -> None:
    """Create a node that everybody may publish to."""
    fields = {f"stanzaq#{name}": (value,) for name, value in options.items()}
    assert await core.ask(Declare(node, owner, {"pubsub#publish_model": ("open",), **fields})) == Declared(node)


async def publish(core: RedisCore, node: str, count: int, body: bytes = BODY, sender: Jid = ALICE) -> list[Result]:
    """Publish items at once."""
    return await asyncio.gather(*(core.ask(Publish(node, sender, None, body, len(body))) for _ in range(count)))


def refused(results: Sequence[Result]) -> list[Refused]:
    """Return the refusals."""
    return [each for each in results if isinstance(each, Refused)]


async def measured(cores: Sequence[RedisCore], *owners: Jid) -> None:
    """Measure now what owners use whose nodes were published to, and let all frontends know it."""
    for owner in owners or (ALICE,):
        cores[0].quota_use.published[bare_jid(owner)] += 0
    for core in cores:
        await core.quota_use.refresh()
    await cores[0].quota_use.measure()
    for core in cores:
        await core.quota_use.refresh()


async def until_published(core: RedisCore, node: str, body: bytes = BODY) -> None:
    """Publish as soon as a frontend has measured that there is room."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not isinstance((await publish(core, node, 1, body))[0], Published):  # noqa: ASYNC110  (a pause of the quota)
            await asyncio.sleep(0.05)


async def test_nodes_of_a_domain(make_core: MakeCore, store: Store, node: str) -> None:
    """Of many that create nodes at once exactly as many succeed as the domain has room for, whatever the frontend."""
    cores = [await made(make_core), await made(make_core)]
    await declared(cores[0], f"{node}-early")
    async with store.client() as client:
        # An earlier version did not count nodes by domain.
        await client.delete(keys.of_jid("created_nodes", "x"))
    await limited(cores, "x", nodes="4")
    await limited(cores, bare_jid(ALICE), nodes="2")
    names = [(core, f"{node}-{number}", owner) for number in range(6) for owner in (ALICE, BOB) for core in cores]
    asked = (core.ask(Declare(f"{name}-{owner[0]}-{core.name}", owner, {})) for core, name, owner in names)
    results = await asyncio.gather(*asked)
    texts = {each.detail for each in refused(results)}
    assert {each.problem for each in refused(results)} == {Problem.TOO_MANY_NODES}
    assert len(results) - len(refused(results)) == 3
    assert texts <= {
        "you have created as many nodes as you may, 2: delete one first, or ask an administrator for more",
        "the users of x have created as many nodes as they may, 4: ask an administrator for more",
    }
    await declared(cores[0], f"{node}-elsewhere", EVE)
    await declared(cores[0], f"{node}-admins", ADMIN)
    assert await cores[1].ask(Delete(f"{node}-early", ALICE)) == Done()
    await declared(cores[1], f"{node}-later", BOB)
    listed = await cores[0].ask(ListQuotas(ADMIN))
    assert isinstance(listed, QuotaList)
    assert next((each.subject, each.nodes) for each in listed.quotas) == ("x", 4)


async def test_partitions(make_core: MakeCore, store: Store, node: str) -> None:
    """Of many that create nodes at once exactly as many succeed as their owner has room for."""
    cores = [await made(make_core, partition_quota=20), await made(make_core, partition_quota=20)]
    await declared(cores[0], f"{node}-early", partitions="3")
    async with store.client() as client:
        # An earlier version did not count partitions.
        await client.delete(keys.of_jid("created_partitions", bare_jid(ALICE)))
    five = {"stanzaq#partitions": ("5",)}
    asked = [core.ask(Declare(f"{node}-{number}-{core.name}", ALICE, five)) for number in range(4) for core in cores]
    results = await asyncio.gather(*asked)
    assert {each.problem for each in refused(results)} <= {Problem.TOO_MANY_NODES, Problem.UNAVAILABLE}
    records = [await cores[0]._store.read(name) for name in await cores[0]._store.names()]
    held = sum(each.config.partitions for each in records if each)
    assert 16 <= held <= 20
    # A node that exists is created again, with fewer: that makes no room.
    (exists,) = refused([await cores[1].ask(Declare(f"{node}-early", ALICE, {}))])
    (over,) = refused([await cores[0].ask(Declare(f"{node}-more", ALICE, five))])
    assert (exists.problem, over.problem) == (Problem.NODE_EXISTS, Problem.TOO_MANY_NODES)
    assert f"5 partitions are too many: your other nodes have {held}, and 20 are allowed" in over.detail
    await declared(cores[0], f"{node}-bobs", BOB, partitions="20")
    await declared(cores[0], f"{node}-admins", ADMIN, partitions="21")
    for name in await cores[0]._store.names():
        if "early" not in name:
            await cores[1].ask(Delete(name, ALICE))
    await declared(cores[1], f"{node}-later", partitions="12")


async def test_partitions_of_a_domain(make_core: MakeCore, node: str) -> None:
    """An administrator limits an owner and a domain: both have room, or the node is refused; what exists is counted."""
    core = await made(make_core)
    await declared(core, node, partitions="3")
    await limited([core], "x", partitions="5")
    await limited([core], bare_jid(ALICE), partitions="4")
    for owner, partitions, said in (
        (ALICE, "2", "your other nodes have 3, and 4 are allowed"),
        (BOB, "3", "other nodes of the users of x have 3, and 5 are allowed"),
    ):
        (over,) = refused([await core.ask(Declare(f"{node}-2", owner, {"stanzaq#partitions": (partitions,)}))])
        assert said in over.detail
    await declared(core, f"{node}-2", BOB, partitions="2")
    found = await core.ask(ListQuotas(ADMIN))
    assert isinstance(found, QuotaList)
    assert {each.subject: each.partitions for each in found.quotas} == {"x": 5, bare_jid(ALICE): 3}


async def test_nodes_that_exist(make_core: MakeCore, store: Store, node: str) -> None:
    """Who creates a node that exists, as workers do when they start, takes it from no quota: of its creator, or its domain."""
    core = await made(make_core)
    await limited([core], "x", nodes="2")
    await declared(core, node)
    assert await core.ask(Affiliate(node, ALICE, {bare_jid(BOB): "owner", bare_jid(ALICE): "none"})) == Done()
    for worker in (BOB, Jid("w1@x/a"), ALICE):
        (again,) = refused([await core.ask(Declare(node, worker, {}))])
        assert again.problem is Problem.NODE_EXISTS
    await declared(core, f"{node}-2", BOB)
    (over,) = refused([await core.ask(Declare(f"{node}-3", BOB, {}))])
    assert over.problem is Problem.TOO_MANY_NODES
    async with store.client() as client:
        asked = ("x", "alice@x", "bob@x", "w1@x")
        counted = [set(await client.zrange(keys.of_jid("created_nodes", jid), 0, -1)) for jid in asked]
    first, second = node.encode(), f"{node}-2".encode()
    assert counted == [{first, second}, {first}, {second}, set()]


@SOMEWHERE
async def test_items(make_core: MakeCore, node: str) -> None:
    """All nodes of an owner share the items, whoever publishes through whatever frontend; done items make room."""
    cores = [await made(make_core), await made(make_core)]
    for name in (node, f"{node}-2"):
        await declared(cores[0], name, partitions="3")
    await limited(cores, "default", items="5")
    assert not refused([*await publish(cores[0], node, 4), *await publish(cores[1], f"{node}-2", 1, sender=EVE)])
    await measured(cores)
    results = [*await publish(cores[0], node, 4), *await publish(cores[1], f"{node}-2", 4, sender=EVE)]
    (text,) = {(each.problem, each.detail) for each in refused(results)}
    assert len(refused(results)) == 8
    assert text[0] is Problem.QUOTA_EXCEEDED
    assert text[1] == (
        "the quota of the node's owner is 5 items in all nodes, and 5 are in use: publish again when items are done, or"
        " ask an administrator for more"
    )
    await declared(cores[1], f"{node}-3", BOB)
    assert not refused(await publish(cores[1], f"{node}-3", 1))
    assert await cores[0].ask(Purge(node, ALICE)) == Purged(4)
    # Some frontend measures before long, since there are publishes.
    await until_published(cores[1], f"{node}-2")
    await limited(cores, "default")
    assert not refused(await publish(cores[0], node, 20))


async def test_between_two_measurements(make_core: MakeCore, node: str) -> None:
    """Only what is published until the next measurement is over the quota; then it holds at all frontends."""
    cores = [await made(make_core), await made(make_core)]
    await declared(cores[0], node)
    await limited(cores, bare_jid(ALICE), items="3")
    assert not refused(await publish(cores[0], node, 20))
    async with asyncio.timeout(PATIENCE_SECONDS):
        for core in cores:
            while not refused(await publish(core, node, 1)):  # noqa: ASYNC110  (the heartbeat measures)
                await asyncio.sleep(0.1)
    # It is measured again as long as it is used up, also if nobody publishes.
    await cores[0].quota_use.measure()
    for core in cores:
        await core.quota_use.refresh()
        assert refused(await publish(core, node, 1))


async def test_bytes(make_core: MakeCore, node: str) -> None:
    """Bytes are the memory of the items, which the first ones of a log take too."""
    core = await made(make_core)
    await declared(core, node, partitions="2")
    await limited([core], bare_jid(ALICE), bytes="100000")
    assert not refused(await publish(core, node, 2, LARGE))
    await measured([core])
    # The last one may take more than there is left.
    assert not refused(await publish(core, node, 1, LARGE))
    await measured([core])
    (over,) = refused(await publish(core, node, 1, LARGE))
    assert " is 100000 bytes in all nodes, and " in over.detail
    (status,) = (await core.ask(ListQuotas(ALICE, bare_jid(ALICE)))).quotas  # type: ignore[union-attr]
    assert 100_000 < status.used["bytes"] < 200_000 and status.share == status.used["bytes"] / 100_000
    await core.ask(Purge(node, ALICE))
    await until_published(core, node, LARGE)


async def test_bytes_by_default(make_core: MakeCore, store: Store, node: str) -> None:
    """Without a quota of bytes an owner has a quarter of the smallest Redis, or a GiB where none has a limit."""
    core = await made(make_core)
    assert core._quotas.find(bare_jid(BOB)) == {bare_jid(BOB): Quota(bytes=2**30)}
    await limited([core], bare_jid(BOB), items="7")
    assert core._quotas.find(bare_jid(BOB)) == {bare_jid(BOB): Quota(items=7, bytes=2**30)}
    assert core._quotas.find_publish_quotas(bare_jid(ADMIN)) == {}
    await declared(core, node)
    async with store.client() as client:
        await client.config_set("maxmemory", 4 * 10**9)
        try:
            (status,) = (await core.ask(ListQuotas(ALICE, bare_jid(ALICE)))).quotas  # type: ignore[union-attr]
            assert status.quota == Quota(bytes=10**9) and status.bytes is not None
            # Nobody has set a quota: what is published is measured, and refused in the end.
            await client.config_set("maxmemory", 0)
            core._quotas._default_at = time.monotonic()
            core._quotas._default, core._quotas._limiting = Quota(bytes=100_000), {}
            assert not refused(await publish(core, node, 3, LARGE))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not refused(await publish(core, node, 1)):  # noqa: ASYNC110  (the heartbeat measures)
                    await asyncio.sleep(0.1)
        finally:
            await client.config_set("maxmemory", 0)


async def test_publishes_of_a_domain(make_core: MakeCore, node: str) -> None:
    """The owners of a domain share its rate, on average, and who may not publish uses nothing of it."""
    cores = [await made(make_core), await made(make_core)]
    await declared(cores[0], node)
    await declared(cores[0], f"{node}-b", BOB)
    assert await cores[0].ask(Configure(f"{node}-b", BOB, {"pubsub#publish_model": ("publishers",)})) == Done()
    await limited(cores, "x", publish_rate="2/h")
    strange = await publish(cores[0], f"{node}-b", 5, sender=EVE)
    assert {each.problem for each in refused(strange)} == {Problem.FORBIDDEN} and len(strange) == 5
    assert not refused([*await publish(cores[0], node, 2), *await publish(cores[1], f"{node}-b", 2, sender=BOB)])
    await measured(cores)
    results = [*await publish(cores[0], node, 3), *await publish(cores[1], f"{node}-b", 3, sender=BOB)]
    assert len(refused(results)) == 6
    assert {each.problem for each in refused(results)} == {Problem.TOO_FAST}
    # Four publishes, and the two that the measurements of this test have counted, have taken as many half hours.
    assert all(7_000_000 < each.wait_ms <= 11_000_000 for each in refused(results))
    assert refused(results)[0].detail.startswith("the quota of all owners of x is 2/h publishes: wait ")
    await declared(cores[0], f"{node}-a", ADMIN)
    assert not refused(await publish(cores[0], f"{node}-a", 3))


async def test_both_rates(make_core: MakeCore, node: str) -> None:
    """What a publisher's rate refuses uses nothing of the owner's quota."""
    core = await made(make_core)
    await declared(core, node, publish_rate="1/h")
    await limited([core], bare_jid(ALICE), items="2")
    assert len(refused(await publish(core, node, 3))) == 2
    assert len(refused(await publish(core, node, 3, sender=BOB))) == 2
    await measured([core])
    assert {each.problem for each in refused(await publish(core, node, 1, sender=EVE))} == {Problem.QUOTA_EXCEEDED}


async def test_who_sets_them(make_core: MakeCore, store: Store) -> None:
    """Administrators alone; a subject is a domain, a bare JID or the default; one that cannot be read does not hold."""
    core = await made(make_core)
    quota = Quota.read({"items": "1", "publish_rate": "5/s"})
    for command in (ListQuotas(ALICE), ListQuotas(ALICE, bare_jid(BOB)), SetQuota(ALICE, "x", quota)):
        assert (await core.ask(command)).problem is Problem.FORBIDDEN  # type: ignore[union-attr]
    for subject in ("", "a b", "alice@x/home", "@x", "x\ny"):
        assert (await core.ask(SetQuota(ADMIN, subject, quota))).problem is Problem.BAD_REQUEST  # type: ignore[union-attr]
    assert (await core.ask(SetQuota(ADMIN, "x", None))).problem is Problem.ITEM_NOT_FOUND  # type: ignore[union-attr]
    for subject in ("Alice@X", "x", "default"):
        assert await core.ask(SetQuota(ADMIN, subject, quota)) == Done()
    async with store.client() as client:
        await client.hset(keys.of_service("quotas"), "y", '{"unheard": 1}')
    assert await core.ask(ListQuotas(ADMIN)) == QuotaList(
        (QuotaStatus("default", quota), QuotaStatus("x", quota, 0, 0, 0), QuotaStatus("alice@x", quota, 0, 0, 0))
    )
    own = Quota(items=1, publish_rate="5/s", bytes=2**30)
    both = (QuotaStatus("x", quota, 0, 0, 0), QuotaStatus("bob@x", own, 0, 0, 0, 0))
    assert await core.ask(ListQuotas(ADMIN, bare_jid(BOB))) == QuotaList(both)
    assert await core.ask(ListQuotas(BOB, bare_jid(BOB))) == QuotaList(both[1:])
    assert await core.ask(ListQuotas(ADMIN, bare_jid(ADMIN))) == QuotaList(())


@pytest.mark.parametrize("partitions", ["1", "3"])
async def test_by_chance(make_core: MakeCore, node: str, partitions: str) -> None:
    """Two frontends, one of which is replaced now and then: a quota that is used up holds, and room is found again."""
    chance = random.Random(int(partitions))
    cores = [await made(make_core), await made(make_core)]
    nodes = [f"{node}-{number}" for number in range(3)]
    for name in nodes:
        await declared(cores[0], name, partitions=partitions)
    most = 12
    await limited(cores, bare_jid(ALICE), items=str(most))

    async def stored() -> int:
        counts = [await cores[0].ask(Stats(name, ALICE)) for name in nodes]
        return sum(each.waiting for each in counts if isinstance(each, Counted))

    for _ in range(15):
        await measured(cores)
        before = await stored()
        match chance.choice(("publish", "publish", "purge", "crash")):
            case "publish":
                results = await publish(chance.choice(cores), chance.choice(nodes), chance.randrange(1, 9))
                assert bool(refused(results)) is (before >= most)
            case "purge":
                await cores[0].ask(Purge(chance.choice(nodes), ALICE))
                if await stored() < most:
                    await until_published(cores[1], chance.choice(nodes))
            case "crash":
                await cores[1].stop()
                cores[1] = await made(make_core)


async def test_metrics(make_core: MakeCore, node: str) -> None:
    """Metrics have what is used of each quota beside its limits, and count publishes that were refused."""
    core = await made(make_core)
    await declared(core, node)
    await limited([core], "x", nodes="7", items="2", publish_rate="1000/s")
    assert not refused(await publish(core, node, 2))
    await measured([core])
    assert len(refused(await publish(core, node, 3))) == 3
    await core.measure()
    registry = core.metrics.registry
    told = {
        (kind, what): registry.get_sample_value(f"stanzaq_quota_{kind}", {"subject": "x", "resource": what})
        for kind in ("used", "limit")
        for what in ("nodes", "items", "bytes")
    }
    assert told == {
        ("used", "nodes"): 1, ("used", "items"): 2, ("used", "bytes"): None,
        ("limit", "nodes"): 7, ("limit", "items"): 2, ("limit", "bytes"): None,
    }  # fmt: skip
    assert registry.get_sample_value("stanzaq_quota_refused_total") == 3


@pytest.mark.parametrize("text", [b'{"items": "10k"}', b'{"publish_rate": "100 per minute"}', b"[1]", b"\xff"])
async def test_an_unreadable_quota(make_core: MakeCore, store: Store, node: str, text: bytes) -> None:
    """A quota that somebody has written wrongly limits nothing, is logged once, and fails neither publishes nor metrics."""
    core = await made(make_core)
    await declared(core, node)
    async with store.client() as client:
        await client.hset(keys.of_service("quotas"), mapping={bare_jid(ALICE): text, "x": '{"items": 5}'})
    with capture_logs() as logs:
        for _ in range(3):
            assert await core._quotas.read() == {"x": Quota(items=5)}
    assert [each["event"] for each in logs].count("a quota cannot be read") <= 1
    assert not refused(await publish(core, node, 1))
    core.metrics.quotas.measured = await core._quotas.statuses()
    assert b'stanzaq_quota_limit{resource="items",subject="x"} 5.0' in generate_latest(core.metrics.registry)


async def test_quotas_of_another_type(make_core: MakeCore, store: Store, node: str) -> None:
    """A frontend starts and serves without quotas where their key is not a hash; it logs that once."""
    async with store.client() as client:
        await client.set(keys.of_service("quotas"), "a text")
    with capture_logs() as logs:
        core = await made(make_core)
        await core._quotas.refresh()
    assert [each["event"] for each in logs].count("quotas not read") == 1
    assert await core.ask(Declare(node, ADMIN, {})) == Declared(node)
    assert not refused(await publish(core, node, 1, sender=ADMIN))


async def test_quota_of_a_former_owner(make_core: MakeCore, node: str) -> None:
    """The quota of an owner whose node was deleted refuses nobody at the node that another has created under its name."""
    here, there = await made(make_core), await made(make_core)
    await limited([here, there], bare_jid(ALICE), items="1")
    await declared(here, f"{node}-full")
    await declared(here, node)
    assert not refused(await publish(here, f"{node}-full", 1))
    await measured([here, there])
    (over,) = refused(await publish(here, node, 1))
    assert over.problem is Problem.QUOTA_EXCEEDED
    assert await there.ask(Delete(node, ALICE)) == Done()
    await declared(there, node, BOB)
    assert not refused(await publish(here, node, 1, sender=BOB))
