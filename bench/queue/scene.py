"""The set-up of a case of `stanzaq bench bounds`: a core on its own server, and nodes filled directly, without the core."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from bench.queue.core import BASE, INTAKE, Bench, Sink, ask
from broker import keys
from broker.model.commands import Command, Declare, Subscribe
from broker.model.items.qos import Qos
from broker.model.names import Jid, Partition
from broker.model.nodes.pull_subscriptions import pull_jid
from broker.redis_core.core import RedisCore
from broker.redis_core.operations.operation import delivery_rows
from broker.redis_core.redis_client.client import Server

if TYPE_CHECKING:
    import redis.asyncio as aioredis

OWNER: Final = Jid("owner@bounds.example/1")

AT_ONCE: Final = 200
"""The rows of a batch."""

_WIRE: Final = {"max_items": "pubsub#max_items", "node_full": "pubsub#publish_node_full", "queueing": "pubsub#queueing"}

BEFORE: Final = "before"
"""The frontend on whose behalf the set-up writes."""

_FIXED: Final = {**BASE, "revision": "", "frontend": BEFORE}

Play = Callable[[], Awaitable[Any]]


class Scene:
    """A core on its own server; `share` is the share of the worst case to run."""

    def __init__(self, core: RedisCore, sink: Sink, server: Server, client: "aioredis.Redis", share: float) -> None:
        """Use this core, which sends to `sink`; the set-up writes through `server`, without the core."""
        self.core = core
        self.sink = sink
        self.client = client
        self.share = share
        self._server = server

    def share_of(self, count: int) -> int:
        """Return the share of `count`."""
        return max(1, round(count * self.share))

    async def ask(self, command: Command) -> Any:  # noqa: ANN401  (typed by the command)
        """Execute a command that must not be refused."""
        return await ask(self.core, command)

    async def node(self, name: str = "work", **options: str) -> "Node":
        """Declare a node."""
        await self.ask(
            Declare(name, OWNER, {_WIRE.get(key, f"stanzaq#{key}"): (value,) for key, value in options.items()})
        )
        async for key in self.client.scan_iter(
            keys.of_partition("meta", Partition(name, "*", 0)).replace("{", "\\{"), 1000
        ):
            return Node(self, Partition.parse(key.decode().partition("{")[2].partition("}")[0]))
        msg = f"{name} has no partition"
        raise RuntimeError(msg)


class Node(Bench):
    """One node of a scene, with one partition."""

    def __init__(self, scene: Scene, partition: Partition) -> None:
        """Use the partition without the core."""
        super().__init__(scene._server, partition.node)  # noqa: SLF001  (of this module)
        self.partition = partition
        self.scene = scene
        self.name = partition.node

    async def subscribe_workers(self, count: int, credit: int, *, pulled: bool = False) -> list[Jid]:
        """Subscribe a number of workers."""
        jids = [
            pull_jid(Jid(f"w{number}@bounds.example"), f"{number:016x}")
            if pulled
            else Jid(f"w{number}@bounds.example/1")
            for number in range(count)
        ]
        qos = Qos.PULLED if pulled else Qos.UNACKNOWLEDGED
        commands = (Subscribe(self.name, jid, jid, credit, qos) for jid in jids)
        await asyncio.gather(*map(self.scene.ask, commands))
        return jids

    async def publish_items(self, count: int, size: int = 10, key: str = "", hints: str = "") -> list[tuple[Any, ...]]:
        """Publish a number of items; returns their deliveries."""
        body, found = b"x" * size, list[tuple[Any, ...]]()
        row = {"item": "", "by": "owner@bounds.example", "body": body, "once": "", "hints": hints, "refused": ""}
        at_once = max(1, min(AT_ONCE, 4_000_000 // size))
        left = count
        while left > 0:
            rows = [{**row, "key": key} for _ in range(min(at_once, left))]
            reply = await self.run("publish", {**_FIXED, **INTAKE}, rows)
            left -= len(reply.rows)
            found += delivery_rows(reply.deliveries)
        return found


def ask_together(scene: Scene, commands: Sequence[Command]) -> Play:
    """Return a case that asks all commands at once."""

    async def play() -> None:
        await asyncio.gather(*map(scene.core.ask, commands))

    return play
