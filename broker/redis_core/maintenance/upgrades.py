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
from broker.model.problems import OtherFormat
from broker.redis_core.maintenance.instances import read_format
from broker.redis_core.records.store import NodeStore, in_name_pages
from broker.redis_core.redis_client.client import Server, Value
from broker.store_format import FIRST, FORMAT, LEAST

log = structlog.get_logger()

_LOCK_MS: Final = 10_000
"""How long the lock of an upgrade lasts without being renewed: a node takes far less."""

_PAUSE_SECONDS: Final = 0.5

_EVERY_SECONDS: Final = 2.0
"""The shortest time between two passes over all nodes: the second one sees an older process that began with the first."""

_CLEAN_PASSES: Final = 2
"""So many passes in a row must find nothing to upgrade, and no older process, before the store is upgraded."""

_LATE_SECONDS: Final = 3.0
"""The longest time between two heartbeats of a process that lives."""


@frozen
class Step:
    """Brings nodes to a `format` from the one before.

    `change` is called with a node's name, or a lease's over several queues, and changes its record and its partitions. It may be
    called again, and then finds its work done.
    """

    format: int
    change: Callable[[Server, NodeStore, str], Awaitable[None]]


STEPS: Final[tuple[Step, ...]] = ()
"""The steps to all formats after the first, in order."""

assert max([FIRST, *(step.format for step in STEPS)]) == FORMAT


class Upgrades:
    """Upgrades the store of one service."""

    def __init__(self, server: Server, store: NodeStore, name: str) -> None:
        """Work as the process `name`; nothing runs before it is asked to."""
        self._server = server
        self._store = store
        self._name = name
        self._next = 0.0
        self._clean = 0
        self.waits_for = ""
        """Why this process cannot serve yet; empty when it can."""

    async def prepare(self) -> None:
        """Make the store one that this version may serve; whoever cannot understand it any more has to end first.

        Raises OtherFormat, and CoreUnavailable: the next call goes on.
        """
        found = await self._store.begin()
        while found.is_upgradable and found.format < LEAST:
            if found.least < LEAST:
                # Heartbeats of older frontends read it, and end them.
                await self._server.command("HSET", keys.of_service("store"), "least", LEAST)
            older = await self._count_older()
            if older:
                self._wait_for(f"{older} processes of an older version have yet to end")
            else:
                self._wait_for("the store is being upgraded")
                await self.work_beside()
            await asyncio.sleep(_PAUSE_SECONDS)
            found = await self._store.read_format()
        self.waits_for = ""
        if not found.is_usable and not found.is_upgradable:
            raise OtherFormat(": ".join(found.refusal()))

    def _wait_for(self, what: str) -> None:
        if what != self.waits_for:
            log.info("not serving yet", reason=what)
        self.waits_for = what

    async def work_beside(self) -> None:
        """Upgrade nodes, and at last the store, unless this or another process is at it. Raises CoreUnavailable."""
        # Without steps there is no older format, and nothing to look for.
        if not STEPS or time.monotonic() < self._next:
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
            changed = False
            async for names in in_name_pages(self._store.swept_names):
                noted = await self._server.commands([("HGET", keys.of_node("node", name), "format") for name in names])
                for name, text in zip(names, noted, strict=True):
                    if (before := int(text or FIRST)) < FORMAT:
                        changed = await self._upgrade(name, before) or changed
                        # A process that hung has lost the lock, and then two find each other's work done.
                        await self._server.command("PEXPIRE", lock, _LOCK_MS)
            # What older programs make meanwhile is for another pass.
            self._clean = 0 if changed or await self._count_older() else self._clean + 1
            found = await self._store.read_format()
            if found.is_upgradable and self._clean >= _CLEAN_PASSES:
                least = max(found.least, LEAST)
                await self._server.command("HSET", keys.of_service("store"), "format", FORMAT, "least", least)
                log.info("store upgraded")
        finally:
            await self._server.command("UNLINK", lock)

    async def _upgrade(self, name: str, before: int) -> bool:
        """Bring a node of an older format to the newest one; returns whether it was there."""
        changed = False
        for step in STEPS:
            if step.format > before:
                await step.change(self._server, self._store, name)
                # A crash may have left a name without a node.
                changed = await self._store.note_format(name, step.format)
        return changed

    async def _count_older(self) -> int:
        """Count the processes of older formats that live, or may still drain; one that does not say its format is such a one."""
        now_ms = await self._store.now_ms()
        listed = [
            ("ZRANGE", keys.of_service(name), 0, -1, "WITHSCORES") for name in ("frontends", "http_amqp_frontends")
        ]
        frontends, doors = await self._server.commands(listed)
        beats = {bytes(member).rpartition(b" ")[2]: int(at) for member, at in (*frontends, *doors)}
        told = await self._server.command("HMGET", keys.of_service("frontend_details"), *beats) if beats else []
        older = 0
        for at, text in zip(beats.values(), told, strict=True):
            number, drains = read_format(text)
            older += number < FORMAT and now_ms - at < (_LATE_SECONDS + drains) * 1000
        return older
