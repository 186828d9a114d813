"""`stanzaq bench scale`: the cost of operations in a small service and in one of a hundred thousand subscriptions.

Each of the two services has a Redis of its own: one with few subscriptions on its node and few nodes, one with many. They
are measured alternating, so that noise hits both. It uses the core directly: a door would only hide the difference.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from rich.console import Console

from bench.queue.core import BODY, Sink, ask, settings
from bench.report import Row, row_at_most, show
from broker.model.commands import Command, Declare, Nodes, Overview, Publish, Subscribe, Unsubscribe
from broker.model.names import Jid, bare_jid
from broker.model.nodes.nodes import MAX_SUBSCRIBERS
from broker.redis_core.core import RedisCore
from frontends.tools.servers.redis import RedisServer

FEW: Final = 100
SUBSCRIPTIONS: Final = MAX_SUBSCRIBERS - 1
"""One less than the maximum, for the subscription that comes and goes."""

NODES: Final = 10_000
_PAGE: Final = 50
_SHORT: Final = 20
_OWNER: Final = Jid("bench@localhost/1")
_STRANGER: Final = Jid("stranger@localhost/1")
"""A stranger, for whom the visibility of each node is checked."""
_NODE: Final = "work"
_AT_ONCE: Final = 500
_CREDIT: Final = 1_000
_ROUNDS: Final = 7

Step = Callable[["_Service"], Awaitable[None]]


class _Service:
    """A core on its own Redis, with a number of subscriptions and nodes."""

    def __init__(self, url: str) -> None:
        """Use an empty Redis."""
        made = settings(url).model_copy(update={"node_quota": NODES, "admins": (bare_jid(_OWNER),)})
        self._core = RedisCore(made, Sink())
        self._fresh = itertools.count()
        self._middle = _NODE

    async def fill(self, subscriptions: int, nodes: int) -> None:
        """Start, and create the nodes and the subscriptions to one of them."""
        await self._core.start()
        await self.ask(Declare(_NODE, _OWNER, {}))
        for first in range(1, nodes, _PAGE):
            names = (f"node{number}" for number in range(first, min(first + _PAGE, nodes)))
            await asyncio.gather(*(self.ask(Declare(name, _OWNER, {})) for name in names))
        self._middle = f"node{nodes // 2}"
        for first in range(0, subscriptions, _AT_ONCE):
            many = range(first, min(first + _AT_ONCE, subscriptions))
            await asyncio.gather(*(self.ask(_subscription(Jid(f"idle{number}@localhost"), _CREDIT)) for number in many))

    async def ask(self, command: Command) -> Any:  # noqa: ANN401  (typed by the command)
        """Execute a command that must not be refused."""
        return await ask(self._core, command)

    async def subscribe(self) -> None:
        """Subscribe one more worker, and unsubscribe it."""
        jid = Jid(f"fresh{next(self._fresh)}@localhost")
        subscribed = await self.ask(_subscription(jid, 1))
        await self.ask(Unsubscribe(_NODE, jid, jid, subscribed.subid))

    async def publish(self) -> None:
        """Publish an item, which is delivered at once."""
        await self.ask(Publish(_NODE, _OWNER, None, BODY, len(BODY)))

    async def list_nodes(self) -> None:
        """Fetch a page of nodes from the middle, as disco#items with RSM does."""
        await self.ask(Nodes(_STRANGER, _PAGE - 10, after=self._middle))

    async def overview(self) -> None:
        """Read as many nodes as `stanzaq node list` reads at once."""
        await self.ask(Overview(_OWNER, 0, _PAGE))

    async def close(self) -> None:
        """Stop the core."""
        await self._core.drain(5)
        await self._core.stop()


def _subscription(jid: Jid, credit: int) -> Subscribe:
    return Subscribe(_NODE, jid, jid, credit)


async def _compare(name: str, step: Step, few: _Service, many: _Service, times: int) -> Row:
    """Compare the best repetitions of one step, in µs."""
    rounds = [(await _measure_time(step, few, times), await _measure_time(step, many, times)) for _ in range(_ROUNDS)]
    beside_few, beside_many = map(min, zip(*rounds, strict=True))
    return row_at_most(name, "µs", beside_many, 1.5, beside_few)


async def _measure_time(step: Step, service: _Service, times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        await step(service)
    return (time.perf_counter() - began) / times * 1e6


async def _measure(small: str, large: str, *, quick: bool) -> list[Row]:
    """Measure all rows, and show the progress."""
    scale = _SHORT if quick else 1
    console = Console(stderr=True)
    few, many = _Service(small), _Service(large)
    try:
        with console.status(f"filling: {SUBSCRIPTIONS // scale:,} subscriptions, {NODES // scale:,} nodes"):
            await few.fill(FEW, FEW)
            await many.fill(SUBSCRIPTIONS // scale, NODES // scale)
        steps: dict[str, tuple[Step, int]] = {
            "scale_subscribe": (_Service.subscribe, 200),
            "scale_publish": (_Service.publish, 200),
            "scale_list_nodes": (_Service.list_nodes, 40),
            "scale_overview": (_Service.overview, 20),
        }
        rows = []
        with console.status("measuring") as status:
            for name, (step, times) in steps.items():
                status.update(f"measuring {name}")
                rows.append(await _compare(name, step, few, many, max(times // scale, 2)))
        return rows
    finally:
        await few.close()
        await many.close()


def main(*, as_json: bool, quick: bool) -> int:
    """Run the benchmark on two embedded Redis; 1 when a target is missed."""
    with RedisServer() as small, RedisServer() as large:
        return show(asyncio.run(_measure(small.url, large.url, quick=quick)), as_json=as_json)
