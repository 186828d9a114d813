"""A partition's next call is sent before the answers of its last one are given, which come once whatever happens to it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from broker.model.commands import Declare, Publish, Subscribe
from broker.model.names import Jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.problems import CoreUnavailable
from broker.model.results import Declared, Published, Refused, Result
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import heartbeat
from broker.redis_core.partitions import pipeline
from broker.redis_core.partitions.batching import Batch
from broker.redis_core.partitions.pipeline import PartitionPipeline
from broker.redis_core.redis_client.client import Line
from broker.redis_core.redis_client.node import RedisNode
from tests.contract.conftest import Door, MakeCore
from tests.waiting import PATIENCE_SECONDS

ALICE, WORKER = Jid("alice@x"), Jid("w@x/1")
SENT, ANSWERED = "sent", "answered"


class Scene:
    """A core, a worker with credit, and the order in which publishes are sent, answered, and delivered."""

    def __init__(self, core: RedisCore, door: Door, node: str) -> None:
        """Begin with nothing published."""
        self.core, self.door, self.node = core, door, node
        self.order: list[tuple[str, str]] = []
        self.outcomes: dict[str, Result] = {}
        self._all = asyncio.Event()

    def publish(self, item: str) -> None:
        """Submit a publish."""
        self.core.submit(Publish(self.node, ALICE, item, b"x", 1), lambda outcome: self._answered(item, outcome))

    def _answered(self, item: str, outcome: Result) -> None:
        self.order.append((ANSWERED, item))
        self.outcomes[item] = outcome
        if len(self.outcomes) == 2:
            self._all.set()

    async def both(self) -> None:
        """Publish `a`, and `b` while the call of `a` is under way."""
        self.publish("a")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._all.wait()
        await self.door.until(lambda: bool(self.door.deliveries))


@pytest.fixture
async def scene(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Return a scene that publishes `b` when the call of `a` is sent."""
    # Heartbeats would sweep between the publishes.
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 3_600)
    monkeypatch.setattr(pipeline, "_MANY", 1)
    core, door = await make_core()
    assert isinstance(await core.ask(Declare(node, ALICE, {})), Declared)
    await core.ask(Subscribe(node, WORKER, WORKER, 2))
    scene = Scene(core, door, node)
    exchange = RedisNode._exchange

    async def sent(master: RedisNode, lines: Sequence[Any], way: Any) -> list[Any]:  # noqa: ANN401  (as it is)
        if any("publish" in line[:2] for line in lines):
            item = "b" if (SENT, "a") in scene.order else "a"
            scene.order.append((SENT, item))
            if item == "a":
                scene.publish("b")
        return await exchange(master, lines, way)

    monkeypatch.setattr(RedisNode, "_exchange", sent)
    return scene


async def test_answers_during_the_next_call(scene: Scene) -> None:
    """A9: Redis works on the next call while this process gives the answers of the last one, and each keeps its order."""
    await scene.both()
    assert scene.order == [(SENT, "a"), (SENT, "b"), (ANSWERED, "a"), (ANSWERED, "b")]
    await scene.door.until(lambda: len(scene.door.deliveries) == 2)
    assert [each.item_id for each in scene.door.deliveries] == ["a", "b"]


@pytest.mark.parametrize("fault", [ValueError(), CoreUnavailable("for this test")])
async def test_the_next_call_fails(scene: Scene, monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    """Guarantee 1: the answers and deliveries of the last call are given once, whatever happens to the next one."""
    call = PartitionPipeline._write_call

    def fail_for_b(pipeline: PartitionPipeline, record: NodeRecord, batch: Batch, name: str) -> Line:
        if (SENT, "a") in scene.order:
            monkeypatch.setattr(PartitionPipeline, "_write_call", call)
            raise fault
        return call(pipeline, record, batch, name)

    monkeypatch.setattr(PartitionPipeline, "_write_call", fail_for_b)
    await scene.both()
    assert scene.order == [(SENT, "a"), (ANSWERED, "a"), (ANSWERED, "b")]
    assert isinstance(scene.outcomes["a"], Published) and isinstance(scene.outcomes["b"], Refused)
    # The pipeline looks for lost deliveries before it publishes again, and finds none.
    assert isinstance(await scene.core.ask(Publish(scene.node, ALICE, "c", b"x", 1)), Published)
    await scene.door.until(lambda: len(scene.door.deliveries) == 2)
    assert [each.item_id for each in scene.door.deliveries] == ["a", "c"]
