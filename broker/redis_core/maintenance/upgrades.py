"""Upgrades a store in place, from the format of an older version to this one's, node by node.

Each format after the first has a step that brings one node to it. If older programs understand what a step leaves, frontends of
both versions serve meanwhile, and the older one may come back; otherwise the store's `least` tells the older ones to end, and the
new ones wait. One process works at a time; if it dies, another goes on where it was. Must not know what a step changes.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from broker import keys
from broker.model.frozen import frozen
from broker.redis_core.maintenance.heartbeat import DEAD_AFTER_MS
from broker.redis_core.maintenance.instances import DOOR_BEAT_MS, read_format
from broker.redis_core.records.store import NodeStore, in_name_pages
from broker.redis_core.redis_client.client import Server, Value
from broker.store_format import FIRST, FORMAT, LEAST

log = structlog.get_logger()

_LOCK_MS: Final = 10_000
"""How long the lock of an upgrade lasts without being renewed: a node takes far less."""

_PAUSE_SECONDS: Final = 0.5

_EVERY_SECONDS: Final = 5.0
"""The shortest time between two passes over all nodes, while older frontends serve too."""


@frozen
class Step:
    """Brings nodes to a `format` from the one before; programs of the format `least` and later understand what it leaves.

    `change` is called with a node's name, or a lease's over several queues, and changes its record and its partitions. It may be
    called again, and then finds its work done.
    """

    format: int
    least: int
    change: Callable[[Server, NodeStore, str], Awaitable[None]]


STEPS: Final[tuple[Step, ...]] = ()
"""The steps to all formats after the first, in order."""

assert max([FIRST, *(step.format for step in STEPS)]) == FORMAT
assert max([FIRST, *(step.least for step in STEPS)]) == LEAST


class Upgrades:
    """Upgrades the store of one service."""

    def __init__(self, server: Server, store: NodeStore, name: str) -> None:
        """Work as the process `name`; nothing runs before it is asked to."""
        self._server = server
        self._store = store
        self._name = name
        self._next = 0.0
        self.waits_for = ""
        """Why this process cannot serve yet; empty when it can."""

    async def prepare(self) -> None:
        """Make the store one that this version may serve; whoever cannot understand it any more has to end first.

        Raises OtherFormat, and CoreUnavailable: the next call goes on.
        """
        found = await self._store.begin()
        if found.is_upgradable and found.format < LEAST:
            # Heartbeats of older frontends read it, and end them.
            await self._server.command("HSET", keys.of_service("store"), "least", LEAST)
        while found.is_upgradable and found.format < LEAST:
            older = await self._count_older()
            self._wait_for(
                f"{older} processes of an older version have yet to end" if older else "the store is being upgraded"
            )
            if not older:
                self._next = 0.0
                await self.work_beside()
            await asyncio.sleep(_PAUSE_SECONDS)
            found = await self._store.read_format()
        self.waits_for = ""

    def _wait_for(self, what: str) -> None:
        if what != self.waits_for:
            log.info("not serving yet", reason=what)
        self.waits_for = what

    async def work_beside(self) -> None:
        """Upgrade nodes, and at last the store, unless this or another process is at it. Raises CoreUnavailable."""
        if time.monotonic() < self._next:
            return
        lock, self._next = keys.of_service("upgrade"), math.inf
        try:
            # One that was not given a time, by a crash, gets it from the next process.
            asked: list[tuple[Value, ...]] = [("HSETNX", lock, "by", self._name), ("PEXPIRE", lock, _LOCK_MS, "NX")]
            if (await self._server.commands(asked))[0]:
                await self._pass_over_nodes(lock)
        finally:
            self._next = time.monotonic() + _EVERY_SECONDS

    async def _pass_over_nodes(self, lock: str) -> None:
        try:
            changed = 0
            async for names in in_name_pages(self._store.swept_names):
                for name in names:
                    changed += await self._upgrade(name)
                    # A process that hung has lost the lock, and then two find each other's work done.
                    await self._server.command("PEXPIRE", lock, _LOCK_MS)
            # What older programs have made meanwhile is for another pass.
            if not changed and not await self._count_older():
                await self._server.command("HSET", keys.of_service("store"), "format", FORMAT, "least", LEAST)
                log.info("store upgraded")
        finally:
            await self._server.command("UNLINK", lock)

    async def _upgrade(self, name: str) -> int:
        """Bring a node to the newest format; returns 1 if it was not there yet."""
        before = int(await self._server.command("HGET", keys.of_node("node", name), "format") or FIRST)
        for step in STEPS:
            if step.format > before:
                await step.change(self._server, self._store, name)
                await self._store.note_format(name, step.format)
        return int(before < FORMAT)

    async def _count_older(self) -> int:
        """Count the live processes of older formats; one that does not say its format is of such a one."""
        now_ms = await self._store.now_ms()
        frontends, doors = await self._server.commands(
            [
                ("ZRANGEBYSCORE", keys.of_service("frontends"), f"({now_ms - DEAD_AFTER_MS}", "+inf"),
                ("ZRANGEBYSCORE", keys.of_service("http_amqp_frontends"), f"({now_ms - 3 * DOOR_BEAT_MS}", "+inf"),
            ]
        )
        names = [*frontends, *(each.rpartition(b" ")[2] for each in doors)]
        told = await self._server.command("HMGET", keys.of_service("frontend_details"), *names) if names else []
        return sum(read_format(text) < FORMAT for text in told)
