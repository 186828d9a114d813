"""What administrators see: single items across partitions, and summaries of many nodes.

Each command is bounded, and the next one continues where it ended. Must not know how items are changed or shown.
"""

import asyncio
import re
from typing import Final

from broker import codec
from broker.model.commands import InspectItems, Overview
from broker.model.items.items import ItemDetails
from broker.model.names import bare_jid
from broker.model.nodes.nodes import READERS, Affiliation
from broker.model.problems import Problem
from broker.model.results import Counted, InspectedItems, Overviewed, Refused, Result, Summary
from broker.model.roles import Role
from broker.redis_core.commands.admin_parts import InspectedPartition, InspectPartition
from broker.redis_core.commands.internal import GONE, Ask
from broker.redis_core.nodes.counting import count_nodes
from broker.redis_core.records.store import NodeStore
from broker.redis_core.records.validation import Rules

MAX_CALLS: Final = 20
"""Calls that one list of items makes at most: a kept log may have many acknowledged entries between items."""

ENTRIES_PER_CALL: Final = 200
"""Entries that one of these calls reads."""

MAX_NAMED: Final = 20
"""Items that may be named at once: each may have the largest payload."""

_READERS: Final = tuple(each.value for each in READERS)
_SCAN: Final = re.compile(r"([0-9]{1,4}) (\S+)", re.ASCII)
_POSITION: Final = re.compile(r"([0-9]{1,20})-([0-9]{1,20})", re.ASCII)
_LARGEST: Final = 2**64 - 1


class Inspection:
    """Carries out `InspectItems` and `Overview`."""

    def __init__(self, store: NodeStore, rules: Rules, ask: Ask) -> None:
        """Inspect partitions by `ask`."""
        self._store = store
        self._rules = rules
        self._ask = ask

    async def inspect_items(self, command: InspectItems, upto: str = "+") -> Result:
        """List items up to the position `upto`."""
        record = await self._store.read(command.node)
        if record is None:
            return GONE
        if command.item_ids:
            return await self._find_by_id(command, record.config.partitions)
        place = _SCAN.fullmatch(command.scan or "0 0-0")
        if place is None or not _exists(place[2]) or not (upto == "+" or _exists(upto)):
            return Refused(Problem.BAD_REQUEST, "the scan names no place to continue from")
        number, after = int(place[1]), place[2]
        found: tuple[ItemDetails, ...] = ()
        examined = 0
        for _look in range(MAX_CALLS):
            left = min(command.limit - len(found), ENTRIES_PER_CALL)
            if number >= record.config.partitions or left <= 0:
                break
            part = await self._ask(InspectPartition(command.node, command.sender, number, (), left, after, upto))
            if not isinstance(part, InspectedPartition):
                assert isinstance(part, Refused)
                return part
            found += _choose(command, part.items)
            examined += len(part.items)
            number, after = (number, part.come) if part.come else (number + 1, "0-0")
        return InspectedItems(found, f"{number} {after}" if number < record.config.partitions else "", examined)

    async def _find_by_id(self, command: InspectItems, partitions: int) -> Result:
        """Find items by their ids in all partitions."""
        if len(command.item_ids) > MAX_NAMED:
            return Refused(Problem.BAD_REQUEST, f"name at most {MAX_NAMED} items at once")
        asked = [
            InspectPartition(command.node, command.sender, number, command.item_ids, ENTRIES_PER_CALL)
            for number in range(partitions)
        ]
        parts = await asyncio.gather(*map(self._ask, asked))
        found: tuple[ItemDetails, ...] = ()
        for part in parts:
            if not isinstance(part, InspectedPartition):
                assert isinstance(part, Refused)
                return part
            found += part.items
        return InspectedItems(_choose(command, found), "", len(found))

    async def overview(self, command: Overview) -> Result:
        """Summarize nodes, in a few round trips for all."""
        asker = bare_jid(command.sender)
        role = self._rules.roles.of(asker)
        # Whoever administrates is an owner everywhere.
        known = () if role is Role.ADMIN else await self._store.affiliations_of(asker)
        affiliations = {name: each.value for name, each in known}
        if self._rules.roles.lets(command):
            total = await self._store.count()
            names = await self._store.names(command.first, command.limit)
        else:
            affiliations = {name: each for name, each in affiliations.items() if each in _READERS}
            total = len(affiliations)
            names = tuple(affiliations)[command.first : command.first + command.limit]
        records = await self._store.records(names)
        counts = await count_nodes(self._store, records)
        nodes = [
            Summary(record, counts.get(record.name, NOTHING), _standing(affiliations.get(record.name, ""), role))
            for record in records
        ]
        return Overviewed(tuple(nodes), total)


def _choose(command: InspectItems, items: tuple[ItemDetails, ...]) -> tuple[ItemDetails, ...]:
    """Return the items that have the key and the headers that are looked for."""
    if command.key:
        items = tuple(each for each in items if each.key == command.key)
    if command.headers:
        wanted = dict(command.headers).items()
        items = tuple(each for each in items if wanted <= codec.unpack_any(each.envelope).headers.items())
    return items


def _standing(affiliation: str, role: Role | None) -> str:
    """Return what somebody is at a node: what lets do more, the affiliation or the role."""
    if role is None or affiliation == Affiliation.OWNER.value:
        return affiliation
    return Affiliation.OWNER.value if role is Role.ADMIN else role.name.lower()


def _exists(position: str) -> bool:
    """Return whether Redis can read a position that a client sent: an unreadable one would fail the operation."""
    found = _POSITION.fullmatch(position)
    # Redis refuses to read after the last possible position.
    return found is not None and int(found[1]) < _LARGEST and int(found[2]) <= _LARGEST


NOTHING: Final = Counted(0, 0, 0, 0, 0, 0, 0, 0)
"""The counts of a node whose partitions are still being created."""
