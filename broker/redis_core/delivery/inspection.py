"""What administrators look at: items one by one, across partitions; nodes in bulk.

Both are bounded a command and go on where the last one has come to. Must not know how what is seen is changed or shown.
"""

import asyncio
import re
from typing import TYPE_CHECKING, Final

from broker.model.commands import Overview, Survey
from broker.model.names import bare
from broker.model.nodes import Affiliation
from broker.model.problems import Problem
from broker.model.results import Counted, Overviewed, Refused, Result, Summary, Surveyed
from broker.redis_core.commands.admin_parts import InspectedItems, InspectItems
from broker.redis_core.commands.internal import GONE, Ask
from broker.redis_core.records.store import NodeStore
from broker.redis_core.records.validation import Rules
from broker.redis_core.registry.merge import added_up

if TYPE_CHECKING:
    from broker.model.items import Seen

MOST_LOOKS: Final = 20
"""Scripts a survey runs before it answers with what it has: what is done stands between items in a log that is kept."""

LOOKED_AT: Final = 200
"""Entries that one of them looks at."""

MOST_NAMED: Final = 20
"""Items that are looked for by name at once: each may have the largest payload."""

_SCAN: Final = re.compile(r"([0-9]{1,4}) (\S+)", re.ASCII)
_POSITION: Final = re.compile(r"([0-9]{1,20})-([0-9]{1,20})", re.ASCII)
_LARGEST: Final = 2**64 - 1


class Inspection:
    """Carries out surveys and overviews."""

    def __init__(self, store: NodeStore, rules: Rules, ask: Ask) -> None:
        """Look at partitions by `ask`."""
        self._store = store
        self._rules = rules
        self._ask = ask

    async def survey(self, command: Survey, upto: str = "+") -> Result:
        """Look at items; what came after the position `upto` is left out."""
        record = await self._store.read(command.node)
        if record is None:
            return GONE
        if command.item_ids:
            return await self._named(command, record.config.partitions)
        place = _SCAN.fullmatch(command.scan or "0 0-0")
        if place is None or not _exists(place[2]) or not (upto == "+" or _exists(upto)):
            return Refused(Problem.BAD_REQUEST, "there is no such place to go on from (scan)")
        number, after = int(place[1]), place[2]
        found: tuple[Seen, ...] = ()
        for _look in range(MOST_LOOKS):
            left = min(command.limit - len(found), LOOKED_AT)
            if number >= record.config.partitions or left <= 0:
                break
            part = await self._ask(InspectItems(command.node, command.sender, number, (), left, after, upto))
            if not isinstance(part, InspectedItems):
                assert isinstance(part, Refused)
                return part
            found += part.items
            number, after = (number, part.come) if part.come else (number + 1, "0-0")
        return Surveyed(found, f"{number} {after}" if number < record.config.partitions else "")

    async def _named(self, command: Survey, partitions: int) -> Result:
        """Look for items by their ids wherever they are."""
        if len(command.item_ids) > MOST_NAMED:
            return Refused(Problem.BAD_REQUEST, f"name at most {MOST_NAMED} items at once")
        asked = [
            InspectItems(command.node, command.sender, number, command.item_ids, LOOKED_AT)
            for number in range(partitions)
        ]
        parts = await asyncio.gather(*map(self._ask, asked))
        found: tuple[Seen, ...] = ()
        for part in parts:
            if not isinstance(part, InspectedItems):
                assert isinstance(part, Refused)
                return part
            found += part.items
        return Surveyed(found, "")

    async def overview(self, command: Overview) -> Result:
        """Look at nodes, a few round trips for all of them."""
        asker = bare(command.sender)
        standings: dict[str, Affiliation] = {}
        if asker in self._rules.admins:
            total = await self._store.count()
            names = await self._store.names(command.first, command.limit)
        else:
            found = await self._store.standings(asker)
            standings = {name: standing for name, standing in found if standing is not Affiliation.OUTCAST}
            total = len(standings)
            names = tuple(standings)[command.first : command.first + command.limit]
        records = await self._store.records(names)
        counts = await self._store.counts([each for record in records for each in record.partitions])
        nodes = []
        for record in records:
            outcomes = [counts[each] for each in record.partitions if each in counts] or [NOTHING]
            nodes.append(Summary(record, added_up(outcomes), standings.get(record.name, Affiliation.OWNER)))
        return Overviewed(tuple(nodes), total)


def _exists(position: str) -> bool:
    """Tell whether Redis can read a position that a door was sent: one that it cannot would be a script's fault."""
    found = _POSITION.fullmatch(position)
    # Nothing can come after the very last one, and Redis refuses to look there.
    return found is not None and int(found[1]) < _LARGEST and int(found[2]) <= _LARGEST


NOTHING: Final = Counted(0, 0, 0, 0, 0, 0, 0, 0)
"""What a node holds whose partitions are just being made."""
