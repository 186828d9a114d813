"""What is done to a node as a whole: declare, configure, describe, affiliate, delete, purge, and the list of nodes.

Each is a few scripts in an order that a crash may cut anywhere. Must not know lanes' insides or any wire.
"""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from broker.model.commands import Affiliate, Configure, Declare, Delete, Describe, Nodes, Purge
from broker.model.items import NodeEvent, Notice
from broker.model.names import NODE_NAME_BYTES, Jid, bare
from broker.model.nodes import Affiliation, NodeRecord, configured
from broker.model.options import NodeConfig
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Declared, Described, Done, Listing, Purged, Refused, Result
from broker.redis_core.directory import Directory
from broker.redis_core.internal import GONE, Extent, Leave, Left, Scanned, Subscribers
from broker.redis_core.policy import refusal

_NAMES = f"a node's name has 1 to {NODE_NAME_BYTES} printable bytes"
_RETRIES = 5
_PURGE_CHUNKS = 10_000


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may create nodes and what a node is when its maker does not say."""

    admins: frozenset[Jid]
    admins_only: bool
    default_queueing: bool


class NodeWork:
    """Carries out the commands that concern nodes."""

    def __init__(  # noqa: PLR0913  (what it works with)
        self,
        directory: Directory,
        *,
        rules: Rules,
        ask: Callable[[Any], Awaitable[Any]],
        changed: Callable[[str], None],
        recount: Callable[[str], Awaitable[None]],
        notify: Callable[[Notice], None],
    ) -> None:
        """Ask lanes by `ask`; `changed` hears of a node whose record is another now, `recount` of one with more partitions."""
        self._directory = directory
        self._rules = rules
        self._ask = ask
        self._changed = changed
        self._recount = recount
        self._notify = notify

    async def declare(self, command: Declare) -> Result:
        """Create a node with its partitions."""
        owner = bare(command.sender)
        node = secrets.token_hex(8) if command.node is None else command.node
        config = self._wanted(command, node)
        if isinstance(config, Refused):
            return config
        refused = await self._misdirected(node, config, owner)
        if refused is not None:
            return refused
        if not await self.counted(owner, node):
            return Refused(Problem.TOO_MANY_NODES, "you have created as many nodes as you may: delete one first")
        return await self.make(node, owner, config)

    def _wanted(self, command: Declare, node: str) -> NodeConfig | Refused:
        if self._rules.admins_only and bare(command.sender) not in self._rules.admins:
            return Refused(Problem.FORBIDDEN, "only administrators may create nodes here")
        if not _nameable(node):
            return Refused(Problem.NODE_NAME_INVALID, _NAMES)
        try:
            config = configured(replace(NodeConfig(), queueing=self._rules.default_queueing), command.options)
        except MalformedRequest as wrong:
            return Refused(wrong.problem, wrong.detail)
        return config

    async def counted(self, owner: Jid, node: str) -> bool:
        """Count a node to its owner's quota, which administrators have not; False when it is used up."""
        return owner in self._rules.admins or await self._directory.own(owner, node)

    async def make(self, node: str, owner: Jid, config: NodeConfig) -> Result:
        """Create a node whoever asks: also the way of a node for dead letters."""
        record = await self._directory.create(node, owner, config)
        if record is None:
            known = await self._directory.read(node)
            if known is None or known.affiliation(owner) is not Affiliation.OWNER:
                await self._directory.disown(owner, node)
            return Refused(Problem.NODE_EXISTS, "a node of this name exists")
        await self._directory.open(record)
        self._changed(node)
        return Declared(node)

    async def describe(self, command: Describe) -> Result:
        """Read a node's record."""
        record = await self._read(command.node)
        if record is None:
            return GONE
        return refusal(command, record) or Described(record)

    async def configure(self, command: Configure) -> Result:
        """Change a node's configuration, then its partitions' copies of it."""
        for _attempt in range(_RETRIES):
            record = await self._read(command.node)
            if record is None:
                return GONE
            refused = refusal(command, record)
            if refused is not None:
                return refused
            try:
                config = configured(record.config, command.options)
            except MalformedRequest as wrong:
                return Refused(wrong.problem, wrong.detail)
            refused = _converted(record.config, config) or await self._misdirected(
                command.node, config, bare(command.sender)
            )
            if refused is not None:
                return refused
            if await self._directory.configure(record, config):
                renewed = replace(record, config=config, revision=record.revision + 1)
                await self._directory.open(renewed)
                self._changed(command.node)
                if config.partitions > record.config.partitions:
                    await self._recount(command.node)
                if config.access_model is not record.config.access_model:
                    await self._expel(renewed, await self._subscribers(command.node))
                return Done()
        return Refused(Problem.UNAVAILABLE, "the node is being changed by others")

    async def affiliate(self, command: Affiliate) -> Result:
        """Change affiliations; whoever loses access loses subscriptions and locks at once."""
        record = await self._read(command.node)
        if record is None:
            return GONE
        refused = refusal(command, record) or await self._directory.affiliate(record, command.changes)
        if refused is not None:
            return refused
        self._changed(command.node)
        # Every lane judges by the revision that its partition has: raise it before the change is answered.
        renewed = await self._read(command.node)
        if renewed is not None:
            await self._directory.open(renewed)
            seats = [seat for jid in command.changes for seat in await self._directory.seats_of(jid, command.node)]
            await self._expel(renewed, seats)
        return Done()

    async def _expel(self, record: NodeRecord, seats: list[Jid]) -> None:
        """Remove those subscriptions whose owners may not subscribe any more, with all that they hold."""
        for seat in seats:
            if refusal(Extent(record.name, seat, 0), record) is None:
                continue
            left = await self._ask(Leave(record.name, seat))
            while isinstance(left, Left) and left.held > 0:
                left = await self._ask(Leave(record.name, seat))
            self._changed(record.name)

    async def delete(self, command: Delete) -> Result:
        """Delete the node and tell all who were subscribed (P24)."""
        record = await self._read(command.node)
        if record is None:
            return GONE
        refused = refusal(command, record)
        if refused is not None:
            return refused
        jids = await self._directory.delete(record)
        for jid, affiliation in record.affiliations.items():
            if affiliation is Affiliation.OWNER:
                await self._directory.disown(jid, command.node)
        self._changed(command.node)
        for jid in jids:
            self._notify(NodeEvent(command.node, jid, "delete"))
        return Done()

    async def purge(self, command: Purge) -> Result:
        """Drop what waits, part by part, and tell each subscriber once (P25)."""
        dropped = 0
        for _chunk in range(_PURGE_CHUNKS):
            result = await self._ask(command)
            if not isinstance(result, Purged):
                return result  # type: ignore[no-any-return]
            dropped += result.count
            if not result.more:
                # Nothing waited any more: what has come since was published after it was asked.
                break
        await self._tell_all(command.node, "purge")
        return Purged(dropped)

    async def nodes(self, _command: Nodes) -> Result:
        """Name the nodes."""
        return Listing(await self._directory.names())

    async def _misdirected(self, node: str, config: NodeConfig, sender: Jid) -> Refused | None:
        """Refuse dead letters into a node that is not the sender's: they would flood it, or tell its owner what they say."""
        target = config.dead_letters_of(node)
        if target == node:
            return Refused(Problem.NOT_ACCEPTABLE, "a node cannot take its own dead letters")
        if target is not None and not _nameable(target):
            # The default is longer than the node's own name.
            return Refused(Problem.NOT_ACCEPTABLE, f"stanzaq#dead_letter_node is no name for a node: {_NAMES}")
        taker = None if target is None else await self._read(target)
        if taker is None or taker.affiliation(sender) is Affiliation.OWNER:
            return None
        return Refused(
            Problem.NOT_ACCEPTABLE,
            f"the node for dead letters, {target!r}, is another's: name one of yours in stanzaq#dead_letter_node",
        )

    async def _tell_all(self, node: str, what: str) -> None:
        for jid in await self._subscribers(node):
            self._notify(NodeEvent(node, jid, what))

    async def _subscribers(self, node: str) -> list[Jid]:
        """List who is subscribed: who shares the node stands in every partition, an owner in its own alone."""
        record = await self._read(node)
        jids: dict[Jid, None] = {}
        for partition in () if record is None else record.partitions:
            scan, ended = "0", False
            while not ended:
                part = await self._ask(Subscribers(node, scan, partition.number))
                if not isinstance(part, Scanned):
                    return list(jids)
                jids |= dict.fromkeys(part.jids)
                scan = part.scan
                ended = scan == "0"
        return list(jids)

    async def _read(self, node: str) -> NodeRecord | None:
        record = await self._directory.read(node)
        return record and with_admins(record, self._rules.admins)


def _converted(before: NodeConfig, after: NodeConfig) -> Refused | None:
    """Refuse to make events of a queue's items, or work of a log's events."""
    if before.queueing == after.queueing:
        return None
    return Refused(Problem.NOT_ACCEPTABLE, "a queue stays a queue and a log a log: make another node")


def _nameable(node: str) -> bool:
    return 0 < len(node.encode()) <= NODE_NAME_BYTES and node.isprintable()


def with_admins(record: NodeRecord, admins: frozenset[Jid]) -> NodeRecord:
    """Let the service's administrators be owners of every node."""
    if not admins:
        return record
    return replace(record, affiliations={**record.affiliations, **dict.fromkeys(admins, Affiliation.OWNER)})
