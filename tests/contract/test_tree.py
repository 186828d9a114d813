"""The tree of nodes over a real server: where nodes are, who may move them, and what crashes and races leave."""

import asyncio
import secrets

import pytest

from broker import codec, keys
from broker.model.commands import (
    Affiliate,
    Associate,
    Browse,
    Children,
    Configure,
    Declare,
    Delete,
    Describe,
    Dissociate,
    Nodes,
    Publish,
    Purge,
)
from broker.model.items.items import Envelope
from broker.model.names import Jid, bare_jid
from broker.model.problems import Problem
from broker.model.results import Declared, Described, Done, Listing, Refused, Result
from broker.redis_core.core import RedisCore
from tests.contract.conftest import SOMEWHERE, MakeCore

ALICE, BOB, CAROL = Jid("alice@x/home"), Jid("bob@x/desk"), Jid("carol@x/pad")


@pytest.fixture
def tag() -> str:
    """Return a text that no other test's names have."""
    return secrets.token_hex(3)


async def collection(core: RedisCore, name: str, parent: str = "", owner: Jid = ALICE, **more: tuple[str, ...]) -> None:
    """Create a collection."""
    fields: dict[str, tuple[str, ...]] = {"pubsub#node_type": ("collection",), "pubsub#collection": (parent,)}
    fields |= {f"pubsub#{field}": values for field, values in more.items()}
    assert await core.ask(Declare(name, owner, fields)) == Declared(name)


async def leaf(core: RedisCore, name: str, parent: str = "", owner: Jid = ALICE) -> Result:
    """Create a leaf."""
    return await core.ask(Declare(name, owner, {"pubsub#collection": (parent,)}))


async def placed(core: RedisCore, name: str) -> tuple[str, tuple[str, ...]]:
    """Return a node's parents and children, as its owner sees them."""
    described = await core.ask(Describe(name, ALICE, as_owner=False))
    assert isinstance(described, Described)
    return described.record.parent, described.children


def problem(outcome: Result) -> Problem:
    """Return the problem of a refusal."""
    assert isinstance(outcome, Refused), outcome
    return outcome.problem


@SOMEWHERE
async def test_a_tree(core: RedisCore, tag: str) -> None:
    """H2, H3, H4: leaves and collections below collections; the root shows only the first level."""
    await collection(core, f"all{tag}")
    await collection(core, f"uk{tag}", f"all{tag}")
    assert await leaf(core, f"books{tag}", f"uk{tag}") == Declared(f"books{tag}")
    assert await leaf(core, f"loose{tag}") == Declared(f"loose{tag}")
    listing = await core.ask(Nodes(BOB))
    assert isinstance(listing, Listing)
    assert [name for name in listing.nodes if tag in name] == [f"all{tag}", f"loose{tag}"]
    assert await core.ask(Children(f"all{tag}", BOB)) == Listing(
        (f"uk{tag}",), count=1, collections=frozenset({f"uk{tag}"})
    )
    assert await core.ask(Children(f"uk{tag}", BOB)) == Listing((f"books{tag}",), count=1)
    assert await core.ask(Children(f"books{tag}", BOB)) == Listing(())
    assert await placed(core, f"books{tag}") == (f"uk{tag}", ())
    assert problem(await core.ask(Children(f"none{tag}", BOB))) is Problem.NODE_NOT_FOUND


async def test_a_collection_holds_no_items(core: RedisCore, node: str) -> None:
    """H2, H8: commands on items are refused with XEP-0060's error, and a leaf has no children."""
    await collection(core, node)
    publish = Publish(node, ALICE, None, codec.pack(Envelope(b"<x/>")), 4)
    assert problem(await core.ask(publish)) is Problem.PUBLISH_UNSUPPORTED
    assert problem(await core.ask(Browse(node, ALICE, (), 1))) is Problem.ITEMS_UNSUPPORTED
    assert problem(await core.ask(Purge(node, ALICE))) is Problem.PERSISTENCE_UNSUPPORTED
    assert problem(await core.ask(Configure(node, ALICE, {"pubsub#node_type": ("leaf",)}))) is Problem.TREE_INVALID
    assert problem(await core.ask(Configure(node, ALICE, {"stanzaq#partitions": ("4",)}))) is Problem.NOT_ACCEPTABLE
    await leaf(core, f"{node}-leaf")
    turned = await core.ask(Configure(f"{node}-leaf", ALICE, {"pubsub#node_type": ("collection",)}))
    assert problem(turned) is Problem.TREE_INVALID
    assert problem(await leaf(core, f"{node}-below", f"{node}-leaf")) is Problem.TREE_INVALID
    above = await core.ask(Configure(f"{node}-leaf", ALICE, {"pubsub#children": (node,)}))
    assert problem(above) is Problem.TREE_INVALID
    letters = await core.ask(Declare(f"{node}-q", ALICE, {"stanzaq#dead_letter_node": (node,)}))
    assert problem(letters) is Problem.NOT_ACCEPTABLE


async def test_moving(core: RedisCore, tag: str) -> None:
    """XEP-0248 §6: by the child's field, by the parent's, by association; both sides show the same."""
    one, two, child, other = (f"{name}{tag}" for name in ("one", "two", "child", "other"))
    await collection(core, one)
    await collection(core, two)
    await leaf(core, child)
    await leaf(core, other)
    assert await core.ask(Associate(one, ALICE, child)) == Done()
    assert await core.ask(Associate(one, ALICE, child)) == Done()
    assert (await placed(core, child))[0] == one and (await placed(core, one))[1] == (child,)
    assert await core.ask(Configure(child, ALICE, {"pubsub#collection": (two,), "pubsub#title": ("T",)})) == Done()
    assert (await placed(core, one))[1] == () and (await placed(core, two))[1] == (child,)
    # An owner of the child alone sends back its form, which names the collection.
    assert await core.ask(Affiliate(child, ALICE, {bare_jid(BOB): "owner"})) == Done()
    assert await core.ask(Configure(child, BOB, {"pubsub#collection": (two,), "pubsub#title": ("B",)})) == Done()
    assert await core.ask(Configure(one, ALICE, {"pubsub#children": (other, child)})) == Done()
    assert (await placed(core, one))[1] == (other, child) and (await placed(core, two))[1] == ()
    assert await core.ask(Configure(one, ALICE, {"pubsub#children": (child,)})) == Done()
    assert await placed(core, other) == ("", ())
    assert problem(await core.ask(Dissociate(two, ALICE, child))) is Problem.NOT_ASSOCIATED
    assert await core.ask(Dissociate(one, ALICE, child)) == Done()
    assert await placed(core, child) == ("", ())
    many = await core.ask(Configure(child, ALICE, {"pubsub#collection": (one, two)}))
    assert problem(many) is Problem.NOT_ACCEPTABLE


async def test_who_may_move(core: RedisCore, tag: str) -> None:
    """XEP-0248 §6.2: the policy of the collection admits, and only its owners move a node.

    Either side may end the association.
    """
    mine, anyones, listed = (f"{name}{tag}" for name in ("mine", "anyones", "listed"))
    await collection(core, mine)
    await collection(core, anyones, children_association_policy=("all",))
    policy, whitelist = ("whitelist",), ("bob@x",)
    await collection(core, listed, children_association_policy=policy, children_association_whitelist=whitelist)
    assert problem(await leaf(core, f"a{tag}", mine, BOB)) is Problem.FORBIDDEN
    assert await leaf(core, f"a{tag}", anyones, BOB) == Declared(f"a{tag}")
    assert await core.ask(Associate(listed, BOB, f"a{tag}")) == Done()
    assert problem(await leaf(core, f"b{tag}", listed, CAROL)) is Problem.FORBIDDEN
    assert problem(await core.ask(Associate(mine, ALICE, f"a{tag}"))) is Problem.FORBIDDEN
    children = await core.ask(Configure(mine, ALICE, {"pubsub#children": (f"a{tag}",)}))
    assert problem(children) is Problem.FORBIDDEN
    assert problem(await core.ask(Dissociate(listed, CAROL, f"a{tag}"))) is Problem.FORBIDDEN
    assert await core.ask(Dissociate(listed, ALICE, f"a{tag}")) == Done()


async def test_bounds(core: RedisCore, tag: str) -> None:
    """H4: bounded children, bounded levels; an entry without a child takes no place."""
    await collection(core, f"few{tag}", children_max=("2",))
    for name in "ab":
        assert isinstance(await leaf(core, f"{name}{tag}", f"few{tag}"), Declared)
    assert problem(await leaf(core, f"c{tag}", f"few{tag}")) is Problem.TOO_MANY_CHILDREN
    assert problem(await core.ask(Describe(f"c{tag}", ALICE, as_owner=False))) is Problem.NODE_NOT_FOUND
    too_many = await core.ask(Configure(f"few{tag}", ALICE, {"pubsub#children": tuple("xyz")}))
    assert problem(too_many) is Problem.TOO_MANY_CHILDREN
    await core.ask(Delete(f"a{tag}", ALICE))
    # An entry without a child, as a crash leaves it.
    await core._server.command("ZADD", keys.of_node("children", f"few{tag}"), 1, f"ghost{tag}")
    assert isinstance(await leaf(core, f"c{tag}", f"few{tag}"), Declared)
    assert (await placed(core, f"few{tag}"))[1] == (f"b{tag}", f"c{tag}")
    above = ""
    for level in range(9):
        await collection(core, f"l{level}{tag}", above)
        above = f"l{level}{tag}"
    assert problem(await leaf(core, f"deep{tag}", above)) is Problem.TREE_INVALID
    # Moved with all that is below it, a collection must fit too.
    await collection(core, f"top{tag}")
    assert problem(await core.ask(Associate(f"top{tag}", ALICE, f"l0{tag}"))) is Problem.TREE_INVALID
    assert await core.ask(Associate(f"top{tag}", ALICE, f"l1{tag}")) == Done()


async def test_no_cycle(make_core: MakeCore, tag: str) -> None:
    """H2: no node is below itself, also when two frontends move two collections at the same moment."""
    (one, _), (two, _) = await make_core(), await make_core()
    a, b, c = (f"{name}{tag}" for name in "abc")
    for name in (a, b, c):
        await collection(one, name)
    assert problem(await one.ask(Associate(a, ALICE, a))) is Problem.TREE_INVALID
    await one.ask(Associate(a, ALICE, b))
    await one.ask(Associate(b, ALICE, c))
    assert problem(await one.ask(Associate(c, ALICE, a))) is Problem.TREE_INVALID
    assert problem(await one.ask(Configure(c, ALICE, {"pubsub#children": (a,)}))) is Problem.TREE_INVALID
    for _ in range(10):
        await asyncio.gather(one.ask(Dissociate(a, ALICE, b)), one.ask(Dissociate(b, ALICE, a)))
        await asyncio.gather(one.ask(Associate(a, ALICE, b)), two.ask(Associate(b, ALICE, a)))
        parents = {name: (await placed(one, name))[0] for name in (a, b)}
        assert parents in ({a: "", b: a}, {a: b, b: ""}, {a: "", b: ""}), parents


async def test_deletion(core: RedisCore, tag: str) -> None:
    """XEP-0248 §7.2: children of a deleted collection are the root's, also when another of its name comes early."""
    await collection(core, f"all{tag}")
    await leaf(core, f"a{tag}", f"all{tag}")
    await leaf(core, f"b{tag}", f"all{tag}")
    assert await core.ask(Delete(f"all{tag}", ALICE)) == Done()
    assert await placed(core, f"a{tag}") == ("", ())
    await collection(core, f"all{tag}")
    await core.ask(Associate(f"all{tag}", ALICE, f"a{tag}"))
    # As a crash leaves it: the collection is gone, its child still names it.
    await core._server.command("UNLINK", keys.of_node("node", f"all{tag}"))
    assert await placed(core, f"a{tag}") == ("", ())
    await collection(core, f"all{tag}", owner=BOB, children_association_policy=("all",))
    assert await placed(core, f"a{tag}") == ("", ())
    listing = await core.ask(Nodes(BOB))
    assert isinstance(listing, Listing)
    assert {f"a{tag}", f"b{tag}", f"all{tag}"} <= set(listing.nodes)
