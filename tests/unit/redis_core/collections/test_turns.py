"""The turns of a collection whose master is away."""

import asyncio
from collections.abc import Callable

from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.options import NodeConfig
from broker.model.nodes.tree import NodeType
from broker.model.problems import Problem
from broker.model.results import Refused
from broker.redis_core.collections.turns import Turns
from broker.redis_core.commands.collections import Turn, Turned
from tests.waiting import PATIENCE_SECONDS


class Known:
    """The record of a collection."""

    record = NodeRecord("all", "life", 1, NodeConfig(node_type=NodeType.COLLECTION))

    async def read(self) -> NodeRecord:
        """Return it."""
        return self.record


class Pipeline:
    """Refuses turns, or takes them."""

    def __init__(self) -> None:
        """Begin with refusals."""
        self.away, self.told = True, list[int]()

    def submit(self, command: Turn, reply: Callable[[Refused | Turned], None]) -> None:
        """Answer a turn."""
        self.told.append(len(command.references))
        reply(Refused(Problem.UNAVAILABLE) if self.away else Turned((), (), more=False))


async def test_many_words() -> None:
    """Words go in parts; after a refusal they wait for the next word, and none is lost."""
    pipeline = Pipeline()
    turns = Turns(Known(), None, lambda _partition: pipeline)  # type: ignore[arg-type, return-value]

    async def rest() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not turns.idle:  # noqa: ASYNC110  (a turn that ends tells nobody)
                await asyncio.sleep(0)

    turns.book((f"r{number}", "ended") for number in range(2_500))
    await rest()
    assert pipeline.told == [1_000]
    pipeline.away = False
    turns.book([("last", "ended")])
    await rest()
    assert pipeline.told == [1_000, 1_000, 1_000, 501]
