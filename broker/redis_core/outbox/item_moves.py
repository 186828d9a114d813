"""Moves items between nodes for an administrator: dead letters back to the node where they died, or any items elsewhere.

Moved items travel like dead letters (`leaving_items`). One command moves one batch; the caller continues from its `scan` until
all are moved. Must not know who the caller is.
"""

from collections import Counter
from dataclasses import replace
from typing import Final

from broker.model.commands import InspectItems, MoveItems
from broker.model.items.items import ItemDetails
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.options import NodeState
from broker.model.problems import Problem
from broker.model.results import InspectedItems, MovedItems, Refused, Result
from broker.redis_core.commands.admin_parts import MovedFromPartition, MoveFromPartition
from broker.redis_core.commands.internal import GONE, Ask
from broker.redis_core.nodes.inspection import MAX_NAMED, Inspection
from broker.redis_core.outbox.leaving_items import DEAD_NODE, DEAD_REASON, headers
from broker.redis_core.records.store import NodeStore
from broker.redis_core.records.validation import Rules

_BATCH: Final = 200


class ItemMoves:
    """Carries out moves."""

    def __init__(self, store: NodeStore, rules: Rules, ask: Ask, inspection: Inspection) -> None:
        """Find items by `inspection` and move them by `ask`."""
        self._store = store
        self._rules = rules
        self._ask = ask
        self._inspection = inspection

    async def move_items(self, command: MoveItems) -> Result:
        """Move one batch: the items that it counts are recorded and arrive even if this process dies."""
        # The first batch fixes the end of the scan: items that die again meanwhile are appended to the same log.
        until, _, place = (command.scan or f"{await self._store.now_ms()}-18446744073709551615 ").partition(" ")
        here = await self._store.read_with_admins(command.node)
        if here is None:
            return GONE
        if not here.is_owned_by(command):
            return Refused(Problem.FORBIDDEN, "only the node's owners may do this")
        refused = None if command.to is None else await self._move_refusal(here, command)
        if refused is not None:
            return Refused(Problem.NOT_ACCEPTABLE, refused)
        count, passed, scan = 0, Counter[str](), ""
        for first in range(0, max(1, len(command.item_ids)), MAX_NAMED):
            named = command.item_ids[first : first + MAX_NAMED]
            inspect = InspectItems(command.node, command.sender, named, min(command.limit, _BATCH), place)
            found = await self._inspection.inspect_items(inspect, until)
            if not isinstance(found, InspectedItems):
                return found
            scan = found.scan
            moving, staying = await self._sort_items(here, command, found.items)
            passed += staying
            for number, moves in moving.items():
                while moves:
                    outcome = await self._ask(MoveFromPartition(command.node, command.sender, number, tuple(moves)))
                    if not isinstance(outcome, MovedFromPartition):
                        assert isinstance(outcome, Refused)
                        return outcome
                    count += outcome.count
                    if outcome.count < outcome.tried:
                        passed["it has been handed out meanwhile"] += outcome.tried - outcome.count
                    del moves[: outcome.tried]
        return MovedItems(count, dict(passed), f"{until} {scan}" if scan else "")

    async def _sort_items(
        self, here: NodeRecord, command: MoveItems, items: tuple[ItemDetails, ...]
    ) -> tuple[dict[int, list[tuple[str, str, str]]], Counter[str]]:
        """Group the items to move by partition, and count the others by the reason."""
        moving: dict[int, list[tuple[str, str, str]]] = {}
        passed: Counter[str] = Counter()
        refusals: dict[str, str | None] = {}
        for item in items:
            # An item on its way does not stay: this move may have sent it, and stored it anew within the scan's last millisecond.
            if item.state == "dying":
                continue
            told = headers(item.envelope)
            if command.reason and told.get(DEAD_REASON) != command.reason:
                continue
            if command.died_in and told.get(DEAD_NODE) != command.died_in:
                continue
            if any(told.get(name) != value for name, value in command.headers):
                continue
            to = command.to or told.get(DEAD_NODE)
            if to is None:
                why: str | None = "it is no dead letter"
            elif item.state not in {"waiting", "delayed"}:
                why = f"it is {item.state}"
            else:
                if to not in refusals:
                    refusals[to] = await self._move_refusal(here, replace(command, to=to))
                why = refusals[to]
            if why is None and to is not None:
                moving.setdefault(item.partition, []).append((item.position, item.item_id, to))
            else:
                passed[str(why)] += 1
        return moving, passed

    async def _move_refusal(self, here: NodeRecord, command: MoveItems) -> str | None:  # noqa: PLR0911  (a list of reasons)
        """Return why the sender may not move items to `to`, or None."""
        to = command.to or ""
        if to == here.name:
            return "a node cannot take its own items"
        there = await self._store.read_node(to)
        if there is None:
            return f"there is no node {to!r}"
        if not there.is_owned_by(command):
            return f"the node {to!r} is another's"
        if not here.config.queueing:
            return "the entries of a log stay where they are"
        if there.config.collects:
            return f"the node {to!r} is a collection"
        if there.config.state is NodeState.DRAINING:
            return f"the node {to!r} is being drained"
        return None
