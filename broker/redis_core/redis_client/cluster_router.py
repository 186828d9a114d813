"""Sends each command to the master of its slot, and again if it has certainly not run.

A command that may have run is never sent twice. redis-py's RedisCluster does not promise that; it also closes all connections
when one slot is down, and sends ASKING and its command on two connections. Must not know how masters are found.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, ReadOnlyError, ResponseError, TryAgainError

from broker.address import NO_NAME, Address
from broker.model.frozen import frozen
from broker.model.problems import CoreUnavailable
from broker.redis_core.redis_client.connections import Line
from broker.redis_core.redis_client.durability import DurableCall
from broker.redis_core.redis_client.failure_log import FailureLog
from broker.redis_core.redis_client.node import CALL, RedisNode, Unloaded, Unsent, fault
from broker.tasks import start

Found = list[tuple[int, int, Address]]
"""The owners of slots: first slot, last slot, master."""

_REFUSED: Final = (Unsent, AskError, TryAgainError, ClusterDownError, ReadOnlyError)
"""Errors of a command that has not run and may run elsewhere or later; MOVED is a subclass of ASK."""

_PAUSE_SECONDS: Final = 0.01
_LONGEST_PAUSE_SECONDS: Final = 0.2
_NO_MASTER: Final = "no Redis serves this slot now"


@frozen
class _PendingCommand:
    """A command to send: its index among the commands, its slot, and the node to ask that does not own the slot yet (ASK)."""

    place: int
    slot: int
    importer: Address | None = None


class Finder(Protocol):
    """Finds masters: through a cluster's nodes, or through sentinels."""

    @property
    def fresh_seconds(self) -> float:
        """How long an answer of `find` is valid."""

    async def find(self) -> Found:
        """Return each range of slots with its master; raises CoreUnavailable when none is known."""

    def client_of(self, address: Address) -> RedisNode:
        """Make a client of a master without connecting."""

    async def close(self) -> None:
        """Close all connections."""


class ClusterRouter:
    """The masters of all slots."""

    def __init__(self, finder: Finder, timeout: float) -> None:
        """Find masters by `finder`; retry refused commands for `timeout` seconds."""
        self._finder = finder
        self._timeout = timeout
        self._owners: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._masters: dict[Address, RedisNode] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._found_at = -math.inf
        self._lost: set[Address] = set()
        self.returns = 0
        self._failures = FailureLog("masters not found")

    async def send(self, lines: Sequence[Line], durable: DurableCall | None = None) -> list[Any]:
        """Send commands in one round trip to each master; a command that stays refused has its error among the replies.

        Commands of one slot run in their order. Raises Unsent when none has run, another CoreUnavailable when a
        connection failed: then any of them may have run.
        """
        loop = asyncio.get_running_loop()
        ends, pause = loop.time() + self._timeout, 0.0
        replies: list[Any] = [None] * len(lines)
        left = [_PendingCommand(place, slot_of(line)) for place, line in enumerate(lines)]
        if not any(self._owners):
            self._refresh()
            await self._wait_for_masters(ends)
        elif loop.time() - self._found_at > self._finder.fresh_seconds:
            self._refresh()
        while True:
            left = await self._round(lines, left, replies, durable)
            if not left:
                return replies
            if loop.time() + pause >= ends:
                break
            # A first redirection is followed at once.
            await asyncio.sleep(pause)
            pause = min(max(_PAUSE_SECONDS, 2 * pause), _LONGEST_PAUSE_SECONDS)
            await self._wait_for_masters(ends)
        if len(left) == len(lines):
            named = fault(replies[0])
            raise Unsent(named.detail, named.problem, str(named)) if isinstance(named, CoreUnavailable) else named
        return replies

    async def everywhere(self, line: Line) -> dict[str, Any]:
        """Send one command to each master that has a slot; raises CoreUnavailable when one of them does not answer."""
        if not any(self._owners):
            self._refresh()
            await self._wait_for_masters(asyncio.get_running_loop().time() + self._timeout)
        owners = {owner for owner in self._owners if owner is not None}
        if not owners:
            raise self._no_master_fault()
        replies = await asyncio.gather(*(self._exchange(owner, False, [line]) for owner in owners))  # noqa: FBT003  (half of a key)
        return {str(owner): reply for owner, (reply,) in zip(owners, replies, strict=True)}

    def _no_master_fault(self) -> Unsent:
        """Return the fault of a slot without a master, with the reason if it is known."""
        return Unsent(_NO_MASTER, report=": ".join(filter(None, (_NO_MASTER, self._failures.reason))))

    async def _round(
        self, lines: Sequence[Line], left: Sequence[_PendingCommand], replies: list[Any], durable: DurableCall | None
    ) -> list[_PendingCommand]:
        """Send the commands that are left to their masters; returns those that must be repeated."""
        groups: dict[tuple[Address, bool], list[_PendingCommand]] = {}
        ways: dict[int, Address | None] = {}
        for pending in left:
            owner = pending.importer or self._owners[pending.slot]
            if owner is None:
                replies[pending.place] = self._no_master_fault()
                self._refresh()
            # A command waits if an earlier one of its slot goes to another node: it would overtake it.
            elif ways.setdefault(pending.slot, pending.importer) == pending.importer:
                groups.setdefault((owner, pending.importer is not None), []).append(pending)
        work = (
            self._exchange(*way, [lines[pending.place] for pending in group], durable) for way, group in groups.items()
        )
        outcomes = await asyncio.gather(*work, return_exceptions=True)
        lost: BaseException | None = None
        for ((owner, _asking), group), outcome in zip(groups.items(), outcomes, strict=True):
            if isinstance(outcome, BaseException):
                self._lost.add(owner)
                self._refresh()
                lost = lost if isinstance(outcome, Unsent) else outcome
            elif owner in self._lost:
                self._note_return(owner)
            for number, pending in enumerate(group):
                replies[pending.place] = outcome if isinstance(outcome, BaseException) else outcome[number]
        if lost is not None:
            raise lost
        return self._find_repeatable(left, replies)

    async def _exchange(
        self,
        owner: Address,
        asking: bool,  # noqa: FBT001  (half of a key)
        lines: list[Line],
        durable: DurableCall | None = None,
    ) -> list[Any]:
        master = self._masters.get(owner)
        if master is None:
            master = self._masters[owner] = self._finder.client_of(owner)
        if not asking:
            return await master.send(lines, durable)
        return (await master.send([each for line in lines for each in (("ASKING",), line)], durable))[1::2]

    def _find_repeatable(self, left: Sequence[_PendingCommand], replies: Sequence[Any]) -> list[_PendingCommand]:
        """Return the refused commands that may be repeated: those that no later command of their slot has overtaken."""
        repeated: list[_PendingCommand] = []
        overtaken: set[int] = set()
        for pending in reversed(left):
            reply = replies[pending.place]
            if pending.slot in overtaken or not _is_refused(reply):
                overtaken.add(pending.slot)
            else:
                repeated.append(replace(pending, importer=self._follow_redirection(pending.slot, reply)))
        return repeated[::-1]

    def _follow_redirection(self, slot: int, reply: Exception) -> Address | None:
        """Learn from a refusal; returns the node to ask though it does not own the slot."""
        if isinstance(reply, AskError) and reply.host != NO_NAME:
            # Without a host it is another port of the same host.
            owner = self._owners[slot]
            address = Address(reply.host or (owner.host if owner else ""), reply.port)
            if not isinstance(reply, MovedError):
                return address
            self._owners[slot] = address
        if not isinstance(reply, TryAgainError):
            self._refresh()
        return None

    def _refresh(self) -> None:
        """Find the masters again."""
        if self._refreshing is None:
            self._refreshing = start(self._find_masters())

    async def _wait_for_masters(self, ends: float) -> None:
        """Wait until the masters are found, at most until the commands' deadline."""
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing], timeout=max(0.0, ends - asyncio.get_running_loop().time()))

    async def _find_masters(self) -> None:
        try:
            found = await self._finder.find()
        except CoreUnavailable as error:
            # The old masters may still serve, or refuse by themselves.
            self._failures.report(error)
            return
        finally:
            self._refreshing = None
        self._failures.note_success()
        owners: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        for first, last, address in found:
            owners[first : last + 1] = [address] * (last + 1 - first)
        self._owners = owners
        self._found_at = asyncio.get_running_loop().time()
        for address in self._masters.keys() - set(owners):
            self._note_return(address)
            await self._masters.pop(address).retire()

    def _note_return(self, lost: Address) -> None:
        """Note that a master answers again, or is replaced."""
        self._lost.discard(lost)
        self.returns += 1

    async def close(self) -> None:
        """Close all connections."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        for master in self._masters.values():
            await master.close()
        await self._finder.close()


def _is_refused(reply: Any) -> bool:
    if isinstance(reply, Unloaded):
        return False
    # redis-py has no class for the error of a master that has lost its replicas, perhaps to a new master.
    return isinstance(reply, _REFUSED) or (isinstance(reply, ResponseError) and str(reply).startswith("NOREPLICAS"))


def slot_of(line: Line) -> int:
    """Return the slot of a command's first key; commands without a key go to the owner of slot 0."""
    first = 3 if line[0] == CALL else 1
    key = line[first] if len(line) > first else ""
    return key_slot(key if isinstance(key, bytes) else str(key).encode())
