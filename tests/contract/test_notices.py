"""Notices about a node itself, which its owner may turn off."""

import pytest

from broker.model.commands import Configure, Declare, Delete, Describe, Publish, Purge, Subscribe
from broker.model.items.items import NodeConfigured, NodeEvent
from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.results import Declared, Described, Done, Published, Purged, Refused, Subscribed
from broker.redis_core.core import RedisCore
from tests.contract.conftest import Door

ALICE, W1, W2 = Jid("alice@x/1"), Jid("w1@x/a"), Jid("w2@x/b")
Options = dict[str, tuple[str, ...]]


async def declared(core: RedisCore, node: str, options: Options) -> None:
    """Create a node with two subscribers."""
    assert isinstance(await core.ask(Declare(node, ALICE, options)), Declared)
    for worker in (W1, W2):
        assert isinstance(await core.ask(Subscribe(node, worker, worker, 1)), Subscribed)


async def test_configuration(core: RedisCore, door: Door, node: str) -> None:
    """P23: with notify_config each subscriber is notified once of each change, and of nothing else."""
    await declared(core, node, {})
    assert await core.ask(Configure(node, ALICE, {"stanzaq#lock_seconds": ("9",)})) == Done()
    assert door.notices == []
    assert await core.ask(Configure(node, ALICE, {"pubsub#notify_config": ("1",)})) == Done()
    assert await core.ask(Configure(node, ALICE, {"stanzaq#lock_seconds": ("9",)})) == Done()
    told = [notice for notice in door.notices if isinstance(notice, NodeConfigured)]
    assert len(told) == len(door.notices) == 2 and {notice.subscriber for notice in told} == {W1, W2}
    assert all(notice.record.config.notify_config and notice.record.config.lock_seconds == 9 for notice in told)


async def test_purge_and_delete(core: RedisCore, door: Door, node: str) -> None:
    """P24, P25: nobody is notified if the owner turned it off."""
    await declared(core, node, {"pubsub#notify_retract": ("0",), "pubsub#notify_delete": ("0",)})
    assert isinstance(await core.ask(Purge(node, ALICE)), Purged)
    assert await core.ask(Delete(node, ALICE, "xmpp:q.x?;node=other")) == Done()
    assert door.notices == []


async def test_redirect(core: RedisCore, door: Door, node: str) -> None:
    """P24: every subscriber is told where to go instead."""
    await declared(core, node, {})
    assert await core.ask(Delete(node, ALICE, "xmpp:q.x?;node=other")) == Done()
    assert {(notice.subscriber, notice.redirect) for notice in door.notices if isinstance(notice, NodeEvent)} == {
        (W1, "xmpp:q.x?;node=other"),
        (W2, "xmpp:q.x?;node=other"),
    }


async def test_preconditions(core: RedisCore, node: str) -> None:
    """P18: a publish with preconditions is judged by the present node, not by a cached record."""
    await declared(core, node, {"pubsub#access_model": ("open",)})

    def publish(model: str) -> Publish:
        return Publish(node, ALICE, None, b"", 0, options={"pubsub#access_model": (model,)})

    assert isinstance(await core.ask(publish("open")), Published)
    refused = await core.ask(publish("whitelist"))
    assert isinstance(refused, Refused) and refused.problem is Problem.PRECONDITION_NOT_MET
    assert await core.ask(Configure(node, ALICE, {"pubsub#access_model": ("whitelist",)})) == Done()
    assert isinstance(await core.ask(publish("whitelist")), Published)
    refused = await core.ask(publish("open"))
    assert isinstance(refused, Refused) and refused.problem is Problem.PRECONDITION_NOT_MET


async def test_whose_it_is(core: RedisCore, node: str) -> None:
    """P8: a node knows its creator and when, whatever becomes of its affiliations."""
    await declared(core, node, {"pubsub#description": ("what for",), "pubsub#type": ("urn:example:jobs",)})
    described = await core.ask(Describe(node, W1, as_owner=False))
    assert isinstance(described, Described)
    record = described.record
    assert (record.creator, record.config.description, record.config.type) == (
        "alice@x",
        "what for",
        "urn:example:jobs",
    )
    assert record.created_ms > 1_700_000_000_000


@pytest.mark.parametrize("field", ["stanzaq#partitions", "pubsub#queueing"])
async def test_what_cannot_be_changed(core: RedisCore, node: str, field: str) -> None:
    """Another number of partitions and another kind of node are not acceptable, with the reason."""
    await declared(core, node, {})
    refused = await core.ask(Configure(node, ALICE, {field: ("2" if "partitions" in field else "0",)}))
    assert isinstance(refused, Refused) and refused.problem is Problem.NOT_ACCEPTABLE
    assert "create a wider one" in refused.detail or "a queue stays a queue" in refused.detail
