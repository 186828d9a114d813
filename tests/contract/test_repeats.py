"""Repeats of stored publishes are answered as such, whatever would refuse a new item before its partition is asked."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from broker.model.commands import (
    Configure,
    Declare,
    Delete,
    Deliver,
    PrepareMessage,
    Publish,
    Redeem,
    Reserve,
    Retract,
    SetQuota,
    Stats,
)
from broker.model.items.dependencies import Dependencies
from broker.model.items.hints import Hints
from broker.model.items.outcomes import ReplyMode
from broker.model.names import Jid, bare_jid
from broker.model.nodes.quotas import Quota
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Counted, Declared, Done, Published, Refused, Reserved, Result, Retracted
from broker.redis_core.core import RedisCore
from broker.redis_core.redis_client.client import Server
from tests.contract.conftest import MakeCore, Store

ADMIN = Jid("root@x/home")
ALICE, BOB = Jid("alice@localhost/home"), Jid("bob@localhost/home")


def item(node: str, item_id: str | None, sender: Jid = ALICE, **more: Any) -> Publish:  # noqa: ANN401  (fields of it)
    """Publish ten bytes."""
    return Publish(node, sender, item_id, b"x" * 10, 10, **more)


async def declared(core: RedisCore, node: str, **options: str) -> None:
    """Create a node that everybody may publish to, and that ignores repeated ids."""
    fields = {f"stanzaq#{name}": (value,) for name, value in ({"dedupe": "ignore"} | options).items()}
    assert await core.ask(Declare(node, ALICE, {"pubsub#publish_model": ("open",), **fields})) == Declared(node)


async def configured(core: RedisCore, node: str, **options: str) -> None:
    """Change options of a node, by names without a colon."""
    names = {"max_payload_size": "pubsub#max_payload_size", "publish_model": "pubsub#publish_model"}
    fields = {names.get(name, f"stanzaq#{name}"): (value,) for name, value in options.items()}
    assert await core.ask(Configure(node, ALICE, fields)) == Done()


async def limited(core: RedisCore, subject: str, **limits: str) -> None:
    """Set a quota, and let the frontend measure what is used of it."""
    assert await core.ask(SetQuota(ADMIN, subject, Quota.read(limits) if limits else None)) == Done()
    await measured(core)


async def measured(core: RedisCore) -> None:
    """Measure now what an owner uses, whose nodes were published to."""
    core.quota_use.published[bare_jid(ALICE)] += 0
    await core.quota_use.refresh()
    await core.quota_use.measure()
    await core.quota_use.refresh()


async def problem(core: RedisCore, command: Any) -> Problem:  # noqa: ANN401  (any command)
    """Return why a command is refused."""
    refused = await core.ask(command)
    assert isinstance(refused, Refused), refused
    return refused.problem


async def waiting(core: RedisCore, node: str) -> int:
    """Return how many items wait."""
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted)
    return counted.waiting


async def used_up(core: RedisCore, node: str) -> None:
    """Publish until a rate refuses."""
    for number in range(5):
        if isinstance(await core.ask(item(node, f"more-{number}")), Refused):
            return
        await measured(core)
    pytest.fail("nothing refuses")


Impose = Callable[[RedisCore, Store, str], Any]


@asynccontextmanager
async def no_memory(store: Store) -> AsyncIterator[None]:
    """Let Redis have no memory left for a while."""
    async with store.client() as client:
        await client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            await client.config_set("maxmemory", 0)


async def rate_of_owner(core: RedisCore, node: str) -> None:
    """Let the owner's quota of publishes be used up."""
    await limited(core, bare_jid(ALICE), publish_rate="1/h")
    await used_up(core, node)


async def rate_of_publisher(core: RedisCore, node: str) -> None:
    """Let the publisher's rate be used up."""
    await configured(core, node, publish_rate="1/h")
    await used_up(core, node)


LIMITS: dict[str, tuple[Problem, Callable[[RedisCore, str], Any]]] = {
    "items": (Problem.QUOTA_EXCEEDED, lambda core, _node: limited(core, bare_jid(ALICE), items="1")),
    "bytes": (Problem.QUOTA_EXCEEDED, lambda core, _node: limited(core, "localhost", bytes="1")),
    "rate of the owner": (Problem.TOO_FAST, rate_of_owner),
    "rate of the publisher": (Problem.TOO_FAST, rate_of_publisher),
    "draining": (Problem.NODE_DRAINING, lambda core, node: configured(core, node, state="draining")),
    "size": (Problem.PAYLOAD_TOO_BIG, lambda core, node: configured(core, node, max_payload_size="1")),
    "results": (Problem.UNSUPPORTED, lambda core, node: configured(core, node, result_seconds="0")),
    "options": (Problem.PRECONDITION_NOT_MET, lambda core, node: configured(core, node, max_deliveries="7")),
}


def kinds(node: str, **more: Any) -> list[Publish]:  # noqa: ANN401  (fields of a publish)
    """Return a publish that is recognised by its id, one by its ticket, and one by its ticket with a digest."""
    return [
        item(node, "named", **more),
        item(node, "b", ticket="tb", **more),
        item(node, "c", ticket="tc", digest="d", **more),
        item(node, "keyed", key="k", **more),
    ]


async def asked(core: RedisCore, commands: Sequence[Any]) -> list[Result]:
    """Give commands at once."""
    return await asyncio.gather(*map(core.ask, commands))


async def check(core: RedisCore, node: str, sent: list[Publish], expected: Problem) -> None:
    """Repeat publishes among new ones: those that are stored are duplicates, and nothing else is stored."""
    count = await waiting(core, node)
    another = [replace(sent[2], digest="e"), replace(sent[0], item_id="new"), replace(sent[1], item_id=None, ticket="")]
    results = await asked(core, [*sent, *another])
    assert results[: len(sent)] == [Published(str(each.item_id), duplicate=True) for each in sent]
    assert results[len(sent)] == Published("c", duplicate=True, differs=True)
    assert [each.problem for each in results[len(sent) + 1 :] if isinstance(each, Refused)] == [expected] * 2
    assert await waiting(core, node) == count
    # Once it is finished, a publish is still a repeat.
    assert isinstance(await core.ask(Retract(node, ALICE, "b")), Retracted)
    assert await core.ask(sent[1]) == Published("b", duplicate=True)
    assert await waiting(core, node) == count - 1


@pytest.mark.parametrize("limit", LIMITS)
async def test_repeats(make_core: MakeCore, node: str, limit: str) -> None:
    """S14, X1: a publisher that lost the answer learns that its item is stored, by any frontend, in any partition."""
    core, _ = await make_core(admins=(bare_jid(ADMIN),))
    partitions = "1" if limit == "rate of the publisher" else "3"
    await declared(core, node, result_seconds="60", partitions=partitions)
    more: dict[str, Any] = {}
    if limit == "results":
        more["hints"] = Hints(reply=ReplyMode.KEPT)
    elif limit == "options":
        more["options"] = {"stanzaq#result_seconds": ("60",), "stanzaq#max_deliveries": ("5",)}
        await configured(core, node, max_deliveries="5")
    sent = kinds(node, **more)
    assert all(isinstance(each, Published) and not each.duplicate for each in await asked(core, sent))
    expected, impose = LIMITS[limit]
    await impose(core, node)
    await check(core, node, sent, expected)


async def test_without_memory(make_core: MakeCore, store: Store, node: str) -> None:
    """A Redis without memory stores nothing, and still knows what it stores."""
    core, _ = await make_core()
    await declared(core, node)
    sent = kinds(node)
    await asked(core, sent)
    async with no_memory(store):
        results = await asked(core, [*sent, item(node, "new")])
        assert results[:-1] == [Published(str(each.item_id), duplicate=True) for each in sent]
        assert isinstance(results[-1], Refused) and results[-1].problem is Problem.OUT_OF_MEMORY


@pytest.mark.parametrize("model", ["publishers", "subscribers"])
async def test_who_may_not_publish(make_core: MakeCore, node: str, model: str) -> None:
    """Who may not publish does not learn what is stored."""
    core, _ = await make_core(admins=(bare_jid(ADMIN),))
    await declared(core, node)
    assert await core.ask(item(node, "a")) == Published("a")
    await configured(core, node, publish_model=model)
    for impose in ({"items": "1"}, {"publish_rate": "1/h"}):
        await limited(core, bare_jid(ALICE), **impose)
        for _ in range(2):
            assert await problem(core, item(node, "a", BOB)) is Problem.FORBIDDEN
        assert await core.ask(item(node, "a")) == Published("a", duplicate=True)


async def test_overwriting(make_core: MakeCore, node: str) -> None:
    """Where a known id replaces the item, it is a new version, which quotas refuse; a ticket is a repeat there, too."""
    core, _ = await make_core(admins=(bare_jid(ADMIN),))
    await declared(core, node, dedupe="overwrite")
    assert await core.ask(item(node, "a")) == await core.ask(item(node, "a")) == Published("a")
    assert await core.ask(item(node, "b", ticket="t")) == Published("b")
    await limited(core, bare_jid(ALICE), items="2")
    assert await problem(core, item(node, "a")) is Problem.QUOTA_EXCEEDED
    assert await core.ask(item(node, "b", ticket="t")) == Published("b", duplicate=True)


async def test_items_that_wait(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeat of an item that waits for others is one, also when a limit or its parents' node is in the way."""
    core, _ = await make_core(admins=(bare_jid(ADMIN),))
    for name in (node, f"{node}-2"):
        await declared(core, name, dedupe="overwrite", partitions="2")
    await asked(core, [item(node, "p"), item(f"{node}-2", "q")])
    hints = Hints(after=Dependencies.parse_names(f"p {node}-2#q", regardless=False))
    sent = [item(node, "child", hints=hints), item(node, "ticket", ticket="t", digest="d", hints=hints)]
    assert await asked(core, sent) == [Published("child"), Published("ticket")]
    new = item(node, "new", hints=hints)
    repeated = [Published("child", duplicate=True), Published("ticket", duplicate=True)]
    await limited(core, bare_jid(ALICE), items="1")
    assert await asked(core, sent) == repeated
    assert await problem(core, new) is Problem.QUOTA_EXCEEDED
    # A publish that was cut short is finished before its repeat is answered.
    begun = item(node, "begun", hints=Hints(after=Dependencies.parse_names("nothing", regardless=False)))
    await limited(core, bare_jid(ALICE))
    with monkeypatch.context() as patch:
        patch.setattr(core._handlers.dependencies, "_finish", lambda *_: asyncio.sleep(0, Refused(Problem.UNAVAILABLE)))
        assert await problem(core, begun) is Problem.UNAVAILABLE
    await limited(core, bare_jid(ALICE), items="1")
    assert await problem(core, begun) is Problem.ITEM_NOT_FOUND
    assert await problem(core, begun) is Problem.QUOTA_EXCEEDED
    await limited(core, bare_jid(ALICE))
    assert await core.ask(Delete(f"{node}-2", ALICE)) == Done()
    assert await asked(core, sent) == repeated
    assert await problem(core, new) is Problem.FORBIDDEN


async def test_assured(make_core: MakeCore, node: str) -> None:
    """S14: an assured message that was published before its frontend died is delivered, whatever the quota is now."""
    core, _ = await make_core(admins=(bare_jid(ADMIN),), qos_trusted="localhost")
    await declared(core, node)
    assert await core.ask(PrepareMessage(ALICE, "m", item(node, None), "s")) == Done()
    assured = core._handlers.exactly_once
    run = assured._run

    async def cut(operation: str, **fixed: Any) -> Any:  # noqa: ANN401  (as it is)
        if operation == "end_delivery":
            msg = "cut"
            raise CoreUnavailable(msg)
        return await run(operation, **fixed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assured, "_run", cut)
        await asked(core, [Deliver(ALICE, "m")])
    assert await waiting(core, node) == 1
    await limited(core, bare_jid(ALICE), items="1")
    assert await core.ask(Deliver(ALICE, "m")) == Done()
    assert await waiting(core, node) == 1


async def test_reserved(make_core: MakeCore, node: str) -> None:
    """RX1: a body that was sent to a reservation before is a repeat in a drained node, another one is refused."""
    core, _ = await make_core()
    await declared(core, node)
    first, other = [await core.ask(Reserve(node, ALICE)) for _ in range(2)]
    assert isinstance(first, Reserved) and isinstance(other, Reserved)
    sent = Redeem(node, ALICE, first.item_id, b"x", 1)
    assert await core.ask(sent) == Published(first.item_id)
    await configured(core, node, state="draining")
    assert await core.ask(sent) == Published(first.item_id, duplicate=True)
    unused = replace(sent, item_id=other.item_id)
    assert await problem(core, unused) is Problem.NODE_DRAINING
    await configured(core, node, state="running")
    assert await core.ask(unused) == Published(other.item_id)


async def test_what_it_costs(make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused and what is accepted go in one script; only a Redis without memory is asked by another one."""
    core, _ = await make_core(admins=(bare_jid(ADMIN),))
    await declared(core, node)
    await core.ask(item(node, "a"))
    calls: list[str] = []
    run_all = Server.run_all

    async def noted(server: Server, lines: Any, _durable: object = None) -> Any:  # noqa: ANN401  (as it is)
        calls.extend(str(line[1]) for line in lines)
        return await run_all(server, lines)

    monkeypatch.setattr(Server, "run_all", noted)
    await limited(core, bare_jid(ALICE), publish_rate="1/h")
    await used_up(core, node)
    calls.clear()
    results = await asked(core, [item(node, name) for name in ("a", *(f"new-{number}" for number in range(50)))])
    assert [isinstance(each, Published) for each in results] == [True] + [False] * 50
    assert calls.count("publish") == 1 and "find_repeat" not in calls
    async with no_memory(store):
        calls.clear()
        await asked(core, [item(node, name) for name in "ab"])
        assert (calls.count("publish"), calls.count("find_repeat")) == (1, 1)


async def test_repeats_use_nothing(make_core: MakeCore, node: str) -> None:
    """Repeats leave room for others."""
    core, _ = await make_core(admins=(bare_jid(ADMIN),))
    await declared(core, node)
    await limited(core, bare_jid(ALICE), items="3")
    assert await core.ask(item(node, "a")) == Published("a")
    for _ in range(10):
        assert await core.ask(item(node, "a")) == Published("a", duplicate=True)
    await measured(core)
    assert await core.ask(item(node, "b")) == Published("b")
    assert await waiting(core, node) == 2
