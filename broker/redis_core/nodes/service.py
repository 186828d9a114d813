"""Operations on whole nodes: declare, configure, describe, affiliate, delete, purge and release.

Each takes a few calls; their order is safe against a crash at any point. Must not know how pipelines work, nor any wire.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from broker.model import audit
from broker.model.commands import Affiliate, Configure, Declare, Delete, Describe, Publish, Purge, Release, Stats
from broker.model.items.durability import Durability
from broker.model.items.items import NodeConfigured, NodeEvent, Notice, SubscriptionChanged
from broker.model.names import Jid, bare_jid, domain, is_group, is_jid, resource
from broker.model.nodes.nodes import NodeRecord, change_config
from broker.model.nodes.options import AccessModel, NodeConfig, NodeState
from broker.model.nodes.pull_subscriptions import is_pull_subscription
from broker.model.nodes.quotas import MOST, Quota, find_quotas
from broker.model.nodes.subscriptions import State, Subscription
from broker.model.nodes.tree import tree_request
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Declared, Described, Done, Purged, Refused, Released, Result, Unaffiliated
from broker.redis_core.commands.internal import Leave, Sweep
from broker.redis_core.nodes.records import Records
from broker.redis_core.nodes.tree_events import TreeEvents
from broker.redis_core.nodes.tree_moves import TreeMoves
from broker.redis_core.ports import HandlerPort
from broker.redis_core.records.tree import move_record
from broker.redis_core.records.validation import NodeRules, Rules, check_conversion, check_options
from broker.redis_core.registry.admission import admit
from broker.redis_core.registry.rows import refusal

_RETRIES = 5
_PURGE_CHUNKS = 10_000
_NOTICE_BATCH = 200
_MAX_RELEASED = 200
_PARTITIONS = Refused(
    Problem.NOT_ACCEPTABLE,
    "stanzaq#partitions: a node keeps the number that it was created with: create a wider one and move its items there",
)

_RESERVED = Refused(Problem.NODE_NAME_INVALID, f"{audit.NODE} is the service's own log")


class SubscriberChanges(Protocol):
    """Applies a node's change to its subscribers."""

    async def remove(self, node: str, jid: Jid) -> tuple[str, ...]:
        """End a JID's subscriptions, notify it of each lock that ends, and return their subids."""

    async def decide_pending(self, node: str) -> None:
        """Decide pending subscriptions that the node's record now admits or forbids."""

    async def end_all(self, node: str) -> list[Jid]:
        """End all pending subscriptions before the node is deleted; returns their JIDs, which are notified."""


class NodeService:
    """Carries out commands on nodes."""

    placement: TreeMoves

    def __init__(
        self,
        records: Records,
        rules: Rules,
        core: HandlerPort,
        subscribers: SubscriberChanges,
        lacks: Callable[[Durability], Awaitable[str]],
    ) -> None:
        """Send commands to partitions through `core` and report changed nodes to it; `subscribers` apply changes.

        `lacks` says why Redis cannot make publishes so durable.
        """
        self._store, self._tree, self._quotas = records.store, records.tree, records.quotas
        self.placement = TreeMoves(self._tree, self._store, self._store.read_node, self._record_changed)
        self._rules = rules
        self._node_rules = NodeRules(rules, self._store.read_node, lacks)
        self._ask: Callable[[Any], Awaitable[Any]] = core.ask_partition
        self._changed = core.node_changed
        self._notify = core.tell
        self._tree_events = TreeEvents(records, core)
        self._subscriptions = subscribers

    async def declare(self, command: Declare) -> Result:
        """Create a node with its partitions at its place in the tree."""
        owner = bare_jid(command.sender)
        node = secrets.token_hex(8) if command.node is None else command.node
        declared = self._node_rules.new_config(command, node)
        if isinstance(declared, Refused):
            return declared
        config, tree = declared
        refused = await self._node_rules.check_durability(config)
        refused = refused or await self._node_rules.check_dead_letter_node(node, config, command)
        if refused is not None:
            return refused
        place = await self.placement.check_place(command, node, None, config, tree)
        if isinstance(place, Refused):
            return place
        refused = await self.count_to_quota(owner, node, config.partitions)
        if refused is not None:
            return refused
        made = await self.make(node, owner, config, place.parent)
        if isinstance(made, Refused):
            return made
        return await self.placement.place_children(command.sender, node, place) or made

    async def count_to_quota(self, owner: Jid, node: str, partitions: int) -> Refused | None:
        """Count a new node to the quotas of its owner and of the owner's domain, or refuse it. Administrators have no quota."""
        limits = await self._find_limits(owner)
        for subject, quota in limits.items():
            # A domain's nodes are counted without a quota too: it may get one later.
            most = MOST if quota.nodes is None else quota.nodes
            if not await self._store.count_owned(subject, node, most):
                await self._store.uncount_owned(owner, node)
                return Refused(Problem.TOO_MANY_NODES, _refuse_for_room(subject, owner, most))
        refused = await self._count_partitions(limits, owner, node, partitions)
        if refused is not None:
            await self._store.uncount_owned(owner, node)
        return refused

    async def _find_limits(self, owner: Jid | None) -> dict[Jid, Quota]:
        """Return what an owner may have, and what the users of its domain together; nothing for an administrator."""
        if owner is None or owner in self._store.roles.admins:
            return {}
        known = find_quotas(await self._quotas.read(), owner)
        limits = {subject: known.get(subject, Quota()) for subject in (owner, Jid(domain(owner)))}
        own, rules = limits[owner], self._rules
        nodes = rules.node_quota if own.nodes is None else own.nodes
        partitions = rules.partition_quota if own.partitions is None else own.partitions
        return limits | {owner: replace(own, nodes=nodes, partitions=partitions)}

    async def _count_partitions(
        self, limits: Mapping[Jid, Quota], owner: Jid | None, node: str, partitions: int
    ) -> Refused | None:
        """Count the partitions of a node to these limits, or refuse them."""
        for subject, quota in limits.items():
            most = quota.partitions
            others = None if most is None else await self._store.count_partitions(subject, node, partitions, most)
            if others is not None:
                whose = "your other nodes" if subject == owner else f"other nodes of the users of {subject}"
                return Refused(
                    Problem.TOO_MANY_NODES,
                    f"{partitions} partitions are too many: {whose} have {others}, and {most} are allowed together:"
                    " use fewer, or ask an administrator for more",
                )
        return None

    async def make(self, node: str, owner: Jid, config: NodeConfig, parent: NodeRecord | None = None) -> Result:
        """Create a node without access checks; nodes for dead letters are created by this too."""
        if node == audit.NODE and owner != audit.SERVICE:
            await self._store.uncount_owned(owner, node)
            return _RESERVED
        refused = None if parent is None else await self._tree.note_child(parent, node)
        if refused is not None:
            await self._store.uncount_owned(owner, node)
            return refused
        record = await self._store.create(node, owner, config, parent)
        if record is None:
            await self._store.uncount_owned(owner, node)
            return Refused(Problem.NODE_EXISTS, "a node of this name exists")
        await self._store.open(record)
        self._changed(node)
        await self._tree_events.apply_above(record)
        await self._tree_events.tell(record, came=True)
        return Declared(node)

    async def describe(self, command: Describe) -> Result:
        """Return a node's record and its place in the tree."""
        record = await admit(self._store, command, command.node)
        if isinstance(record, Refused):
            return record
        if refusal(Stats(command.node, command.sender), record) is not None:
            asker = bare_jid(command.sender)
            known = replace(
                record, affiliations={asker: record.affiliation_of(command)}, creator=None, created_ms=0, parent=""
            )
            return Described(known, reads=False)
        if not (record.parent or record.config.collects):
            return Described(record)
        placed = record if await self._tree.find_above(record) else move_record(record, None)
        return Described(placed, await self._tree.children(record))

    async def admits(self, command: Publish) -> NodeRecord | Refused:
        """Return the node that somebody may publish to, or the refusal."""
        return await admit(self._store, command, command.node)

    async def configure(self, command: Configure) -> Result:
        """Change a node's configuration and place, then the copies in its partitions."""
        for _attempt in range(_RETRIES):
            record = await admit(self._store, command, command.node)
            if isinstance(record, Refused):
                return record
            outcome = await self._try_configure(command, record)
            if outcome is not None:
                return outcome
        return Refused(Problem.UNAVAILABLE, "the node is being changed by others")

    async def _try_configure(self, command: Configure, record: NodeRecord) -> Result | None:
        """Change a node as it was read; None when it has changed since."""
        try:
            options, tree = tree_request(command.options)
            config = change_config(record.config, options)
        except MalformedRequest as wrong:
            return Refused(wrong.problem, wrong.detail)
        if config.partitions != record.config.partitions:
            return _PARTITIONS
        refused = check_conversion(record.config, config) or check_options(config)
        if config.confirm is not record.config.confirm:
            refused = refused or await self._node_rules.check_durability(config)
        if config.dead_letters_of(command.node) != record.config.dead_letters_of(command.node):
            refused = refused or await self._node_rules.check_dead_letter_node(command.node, config, command)
        if refused is not None:
            return refused
        place = await self.placement.check_place(command, command.node, record, config, tree)
        if isinstance(place, Refused):
            return place
        changed = await self.placement.change(record, config, place.parent)
        if changed is None or isinstance(changed, Refused):
            return changed
        return await self.placement.place_children(command.sender, command.node, place) or Done()

    async def _record_changed(self, record: NodeRecord, renewed: NodeRecord) -> None:
        """Bring partitions and subscribers up to a changed record."""
        await self._apply_config(record.config, renewed)
        places = {(each.parent, each.parent_life, each.config.access_model) for each in (record, renewed)}
        if len(places) > 1:
            await self._tree_events.apply_above(record, renewed)
        if (record.parent, record.parent_life) != (renewed.parent, renewed.parent_life):
            await self._tree_events.tell(record, came=False)
            await self._tree_events.tell(renewed, came=True)

    async def _apply_config(self, before: NodeConfig, record: NodeRecord) -> None:
        """Apply a changed configuration."""
        config = record.config
        await self._store.open(record)
        self._changed(record.name)
        resumed = before.state is NodeState.PAUSED and config.state is not NodeState.PAUSED
        held_back = before.limits, before.limits_by_key, before.ordered
        if resumed or held_back != (config.limits, config.limits_by_key, config.ordered):
            await self._sweep(record)
        if config.access_model is not AccessModel.OPEN:
            # Also if it is as before: an earlier change may have been cut short here.
            await self._end_forbidden(record, await self._subscribers(record.name))
        if config.notify_config and config != before:
            await self._notify_all(record.name, partial(NodeConfigured, record=record))
        await self._subscriptions.decide_pending(record.name)

    async def _sweep(self, record: NodeRecord) -> None:
        """Sweep all partitions of a node, which hands out its waiting items."""
        await asyncio.gather(*(self._ask(Sweep(record.name, each.number)) for each in record.partitions))

    async def affiliate(self, command: Affiliate) -> Result:
        """Change affiliations; a JID that loses access loses subscriptions and locks at once."""
        record = await admit(self._store, command, command.node)
        if isinstance(record, Refused):
            return record
        # An old affiliation may be removed even if its JID is invalid.
        wrong = [
            name for name in command.changes if not (is_jid(name) or is_group(name) or name in record.affiliations)
        ]
        refused: Refused | None
        if wrong:
            refused = Refused(Problem.NOT_ACCEPTABLE, f"{wrong[0][:80]} is neither a JID nor group:NAME")
        else:
            refused = await self.assign(record, command.changes)
        if refused is None or refused.problem is not Problem.NOT_ACCEPTABLE:
            return refused or Done()
        now = await self._store.read_with_admins(command.node) or record
        return Unaffiliated(refused.detail, tuple((jid, now.affiliation(jid)) for jid in command.changes))

    async def assign(self, record: NodeRecord, changes: Mapping[Jid, str]) -> Refused | None:
        """Change affiliations without access checks, and apply the consequences."""
        node = record.name
        refused = await self._store.affiliate(record, changes)
        if refused is not None:
            return refused
        self._changed(node)
        # Pipelines compare a record's revision with their partition's: raise it before the change is answered.
        renewed = await self._store.read_with_admins(node)
        if renewed is not None:
            await self._store.open(renewed)
            jids = [each for jid in changes for each in await self._subscribed_as(jid, node)]
            await self._end_forbidden(renewed, jids)
            await self._tree_events.apply_above(renewed)
            await self._subscriptions.decide_pending(node)
        return None

    async def _subscribed_as(self, jid: Jid, node: str) -> Collection[Jid]:
        """Return the JIDs of a bare JID, or of all accounts of a domain or a group, that are subscribed to a node."""
        if is_group(jid):
            return [each for each in await self._subscribers(node) if is_pull_subscription(each)]
        if domain(jid) != jid:
            return await self._store.find_subscribed_jids(jid, node)
        return [each for each in await self._subscribers(node) if domain(bare_jid(each)) == jid]

    async def _end_forbidden(self, record: NodeRecord, jids: Collection[Jid]) -> None:
        """End the subscriptions of JIDs that may no longer subscribe, with all that they hold, and notify them."""
        # A role lets look, and not subscribe.
        for jid in await self._store.find_forbidden(record, jids):
            for ended in await self._subscriptions.remove(record.name, jid):
                self._notify(SubscriptionChanged(Subscription(record.name, jid, ended, State.NONE)))
            self._changed(record.name)

    async def delete(self, command: Delete) -> Result:
        """Delete the node and notify all subscribers, pending ones included (P24)."""
        record = await admit(self._store, command, command.node)
        if isinstance(record, Refused):
            return record
        waited = await self._subscriptions.end_all(command.node)
        children = await self._tree.children(record)
        through = await self._tree_events.find_workers_above(record)
        above = await self._tree.find_above(record)
        if record.config.collects:
            through = await self._subscribers(command.node)
            # The leaves stay: items that are held through the collection return to them, and holders are notified. What a
            # deletion that was cut short has noted is ended by the next one.
            for jid in through:
                await self._ask(Leave(command.node, jid, notices=True))
            await self._tree_events.apply_in((record.name,))
            for jid in through:
                await self._subscriptions.remove(command.node, jid)
        jids = await self._store.delete(record)
        if record.parent:
            await self._tree.remove_child(record.parent, record.name)
        await self.placement.detach_children(record, children)
        await self._tree_events.apply_in(above)
        await self._tree_events.tell(record, came=False)
        self._changed(command.node)
        if record.config.notify_delete:
            for jid in dict.fromkeys((*through, *jids, *waited)):
                self._notify(NodeEvent(command.node, jid, "delete", command.redirect))
        return Done()

    async def purge(self, command: Purge) -> Result:
        """Drop waiting items in batches, and notify each subscriber once (P25)."""
        dropped = 0
        record = await self._store.read_with_admins(command.node)
        for _chunk in range(_PURGE_CHUNKS):
            result = await self._ask(command)
            if not isinstance(result, Purged):
                return result  # type: ignore[no-any-return]
            dropped += result.count
            if not result.more:
                # The rest was published after the request.
                break
        if record is not None and record.config.notify_retract:
            await self._notify_all(command.node, lambda jid: NodeEvent(command.node, jid, "purge"))
        return Purged(dropped)

    async def release(self, command: Release) -> Result:
        """End locks by force, in batches."""
        if len(command.item_ids) > _MAX_RELEASED:
            return Refused(Problem.BAD_REQUEST, f"name at most {_MAX_RELEASED} items at once")
        if command.holder is None:
            outcome = await self._release(command)
            if isinstance(outcome, Released) and not outcome.count:
                return Refused(Problem.ITEM_NOT_FOUND, "nobody holds an item of this id")
            return outcome
        # A bare JID means all of its resources.
        resources = (
            () if resource(command.holder) else await self._store.find_subscribed_jids(command.holder, command.node)
        )
        count = 0
        for jid in dict.fromkeys((command.holder, *resources)):
            outcome = await self._release(replace(command, holder=jid))
            if not isinstance(outcome, Released):
                return outcome
            count += outcome.count
        return Released(count)

    async def _release(self, command: Release) -> Result:
        """End all locks that one command names, in as many calls as that takes."""
        count, left = 0, 1
        while left:
            outcome = await self._ask(command)
            if not isinstance(outcome, Released):
                return outcome  # type: ignore[no-any-return]
            count, left = count + outcome.count, outcome.left
        return Released(count)

    async def _notify_all(self, node: str, notice: Callable[[Jid], Notice]) -> None:
        record = await self._store.read_with_admins(node)
        through = [] if record is None else await self._tree_events.find_workers_above(record)
        for number, jid in enumerate(dict.fromkeys([*await self._subscribers(node), *through]), 1):
            self._notify(notice(jid))
            if number % _NOTICE_BATCH == 0:
                # There may be tens of thousands of notices: let other tasks run.
                await asyncio.sleep(0)

    async def _subscribers(self, node: str) -> list[Jid]:
        return list(dict.fromkeys(jid for jid, _whose in await self._tree_events.scopes(node)))


def _refuse_for_room(subject: str, owner: Jid, most: int) -> str:
    """Say why an owner may not create another node."""
    if subject == owner:
        return f"you have created as many nodes as you may, {most}: delete one first, or ask an administrator for more"
    return f"the users of {subject} have created as many nodes as they may, {most}: ask an administrator for more"
