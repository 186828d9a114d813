"""Long lists, page by page: items of a node and nodes of the service, while they come and go."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from broker import keys
from broker.model.commands import Affiliate, Browse, Declare, Delete, Nodes, Publish, Retract
from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.results import Browsed, Declared, Done, Listing, Published, Refused, Retracted
from broker.redis_core.core import RedisCore
from broker.redis_core.redis_client.connections import Connection, Line
from tests.contract.conftest import SOMEWHERE, MakeCore, Store

ALICE, BOB = Jid("alice@x/1"), Jid("bob@x/1")


async def declared(core: RedisCore, node: str, **options: str) -> None:
    """Create a node of Alice's."""
    fields = {
        f"pubsub#{name}" if name != "partitions" else f"stanzaq#{name}": (value,) for name, value in options.items()
    }
    assert isinstance(await core.ask(Declare(node, ALICE, fields)), Declared)


async def published(core: RedisCore, node: str, *names: str) -> None:
    """Publish items."""
    for name in names:
        assert isinstance(await core.ask(Publish(node, ALICE, name, b"", 0)), Published)


async def all_items(core: RedisCore, wanted: Browse) -> list[str]:
    """Go through all pages in one direction; return the names in the order of the list."""
    found: list[str] = []
    while True:
        page = await core.ask(wanted)
        assert isinstance(page, Browsed) and len(page.items) <= wanted.limit
        names = [item.item_id for item in page.items]
        found = names + found if wanted.backwards else found + names
        if not page.more:
            return found
        # No page but the last is empty, because clients would take it for the last.
        assert page.items
        end = page.items[0].place if wanted.backwards else page.items[-1].place
        wanted = replace(wanted, before=end) if wanted.backwards else replace(wanted, after=end)


@SOMEWHERE
async def test_items_of_several_partitions(make_core: MakeCore, node: str) -> None:
    """P21: every item once, forwards and backwards, however they are spread."""
    core, _door = await make_core()
    await declared(core, node, partitions="5")
    names = [f"i{number}" for number in range(43)]
    await published(core, node, *names)
    forwards = await all_items(core, Browse(node, ALICE, (), 7))
    assert sorted(forwards) == sorted(names)
    assert await all_items(core, Browse(node, ALICE, (), 4, backwards=True)) == forwards
    page = await core.ask(Browse(node, ALICE, (), 0))
    assert isinstance(page, Browsed) and (page.items, page.count) == ((), 43)


async def test_items_come_and_go(core: RedisCore, node: str) -> None:
    """XEP-0059 §2.2: an item present from the first page to the last is shown once, whatever else comes and goes."""
    await declared(core, node, partitions="3")
    names = [f"i{number}" for number in range(30)]
    await published(core, node, *names)
    wanted, number = Browse(node, ALICE, (), 4), 0
    shown: list[str] = []
    while True:
        page = await core.ask(wanted)
        assert isinstance(page, Browsed)
        shown += [item.item_id for item in page.items]
        if not page.more:
            break
        wanted = replace(wanted, after=page.items[-1].place)
        # The very item from which the next page continues.
        assert isinstance(await core.ask(Retract(node, ALICE, page.items[-1].item_id)), Retracted)
        await published(core, node, f"new{number}")
        number += 1
    assert sorted(name for name in shown if not name.startswith("new")) == sorted(names)


async def test_versions_without_items(core: RedisCore, node: str) -> None:
    """A part of the log without items does not look like its end."""
    await declared(core, node)
    names = [f"i{number}" for number in range(20)]
    await published(core, node, *names, *names, "last")
    assert await all_items(core, Browse(node, ALICE, (), 3)) == [*names, "last"]
    assert await all_items(core, Browse(node, ALICE, (), 3, backwards=True)) == [*names, "last"]


async def nodes_of(core: RedisCore, asker: Jid, most: int, *, backwards: bool = False) -> list[str]:
    """Go through all nodes in one direction."""
    wanted = Nodes(asker, most, backwards=backwards)
    found: list[str] = []
    while True:
        page = await core.ask(wanted)
        assert isinstance(page, Listing) and len(page.nodes) <= most
        found = [*page.nodes, *found] if backwards else [*found, *page.nodes]
        if not page.more:
            return found
        wanted = replace(wanted, before=page.nodes[0]) if backwards else replace(wanted, after=page.nodes[-1])


@SOMEWHERE
async def test_who_sees_which_nodes(make_core: MakeCore, node: str) -> None:
    """P9: outcasts do not see a node, and only listed JIDs see a whitelist's; in pages of any length."""
    core, _door = await make_core(admins=("root@x",))
    names = [f"{node}-{number}" for number in range(9)]
    for number, name in enumerate(names):
        await declared(core, name, access_model="whitelist" if number % 3 == 1 else "open")
    assert await core.ask(Affiliate(names[4], ALICE, {Jid("bob@x"): "member"})) == Done()
    assert await core.ask(Affiliate(names[7], ALICE, {Jid("bob@x"): "publish-only"})) == Done()
    assert await core.ask(Affiliate(names[0], ALICE, {Jid("bob@x"): "outcast"})) == Done()
    for_bob = [names[number] for number in (2, 3, 4, 5, 6, 7, 8)]
    for most in (1, 2, 3, 9, 500):
        assert await nodes_of(core, BOB, most) == for_bob == await nodes_of(core, BOB, most, backwards=True)
        assert await nodes_of(core, ALICE, most) == names == await nodes_of(core, Jid("root@x"), most, backwards=True)
    assert await core.ask(Nodes(BOB, 0)) == Listing((), 0, 9, more=True)
    assert await core.ask(Nodes(ALICE, 2, index=5)) == Listing((names[5], names[6]), 5, 9, more=True)


async def test_a_node_that_is_gone(core: RedisCore, node: str) -> None:
    """XEP-0059 §2.4: a list does not continue from an unknown node."""
    await declared(core, node)
    assert await core.ask(Delete(node, ALICE)) == Done()
    for wanted in (Nodes(ALICE, 5, after=node), Nodes(ALICE, 5, before=node, backwards=True)):
        outcome = await core.ask(wanted)
        assert isinstance(outcome, Refused) and outcome.problem is Problem.ITEM_NOT_FOUND


async def test_hidden_nodes_end_no_list(core: RedisCore, node: str, store: Store) -> None:
    """However many hidden nodes lie in between, a page is empty only at the end."""
    await declared(core, f"{node}-first")
    async with store.client() as client, client.pipeline(transaction=False) as pipe:
        for number in range(3_000):
            name = f"{node}-{number}"
            pipe.zadd(keys.of_service("all_nodes"), {name: 2**41 + number})
            pipe.hset(keys.of_node("options", name), "pubsub#access_model", "whitelist")
        await pipe.execute()
        await client.zadd(keys.of_service("all_nodes"), {f"{node}-last": 2**42})
    assert await nodes_of(core, BOB, 10) == [f"{node}-first", f"{node}-last"]
    assert await nodes_of(core, BOB, 10, backwards=True) == [f"{node}-first", f"{node}-last"]


def values(reply: Any) -> int:  # noqa: ANN401  (what Redis replies)
    """Count the values of a reply."""
    return sum(map(values, reply)) if isinstance(reply, list) else 1


@pytest.mark.parametrize("backwards", [False, True])
async def test_a_page_costs_the_same(
    core: RedisCore, node: str, store: Store, monkeypatch: pytest.MonkeyPatch, *, backwards: bool
) -> None:
    """A page of a hundred nodes takes as many words to and from Redis among ten thousand as among a hundred."""
    replies, words = Connection.replies, 0

    async def counted(self: Connection, lines: Sequence[Line], _blocked: float = 0) -> list[Any]:
        nonlocal words
        found = await replies(self, lines)
        words += sum(map(len, lines)) + values(found)
        return found

    monkeypatch.setattr(Connection, "replies", counted)

    async def grow(first: int, last: int) -> None:
        async with store.client() as client, client.pipeline(transaction=False) as pipe:
            for number in range(first, last):
                pipe.zadd(keys.of_service("all_nodes"), {f"{node}-{number}": number})
            await pipe.execute()

    async def spent() -> int:
        costs = []
        for _again in range(5):
            before = words
            page = await core.ask(Nodes(BOB, 100, backwards=backwards))
            costs.append(words - before)
            assert isinstance(page, Listing) and len(page.nodes) == 100
        # The least: what the core does in the background only adds.
        return min(costs)

    await grow(0, 101)
    few = await spent()
    await grow(101, 10_000)
    assert await spent() == few
