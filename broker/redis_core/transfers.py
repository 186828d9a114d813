"""Items on their way from one node to another by an administrator's word: dead letters back to where they died, or any elsewhere.

Two idempotent steps, like a dead letter's (design §5), and the same record of what is between them: `handover`, where a node
stands in the place of a holder. A step of many is one command; whoever wants all asks again from where it has come to, as
fast as it likes, and stops when it likes. Must not know who that is.
"""

from collections import Counter
from dataclasses import replace
from typing import Any, Final

import structlog

from broker import codec
from broker.model.items import Envelope, Seen
from broker.model.names import Jid, bare
from broker.model.nodes import Affiliation, NodeRecord
from broker.model.options import NodeState
from broker.model.oversight import Survey, Transfer
from broker.model.problems import CorruptRecord, Problem
from broker.model.results import Published, Refused, Result, Surveyed, Transferred
from broker.redis_core.directory import Directory
from broker.redis_core.internal import GONE, Ask, Handed
from broker.redis_core.nodes import with_admins
from broker.redis_core.parts import Admit, TransferPart
from broker.redis_core.surveys import MOST_NAMED, Surveys
from broker.redis_core.terms import Rules

log = structlog.get_logger()

MARK: Final = b">"
"""In the place of a holder: what follows is a node. No JID begins with it (RFC 7622 §3.3)."""

DEAD_NODE, DEAD_ITEM, DEAD_REASON = (f"stanzaq-dead-{name}" for name in ("node", "item", "reason"))

MOVED_FROM, MOVED_ATTEMPTS, MOVED_TIMES = (f"stanzaq-moved-{name}" for name in ("from", "attempts", "times"))
"""What an item tells of its last transfer: the node, its deliveries there, and the how-many-th transfer it was."""

_MOST: Final = 200
_TIMES_DIGITS: Final = 6


class Transfers:
    """Carries out transfers."""

    def __init__(self, directory: Directory, rules: Rules, ask: Ask, surveys: Surveys) -> None:
        """Look for items by `surveys` and move them by `ask`."""
        self._directory = directory
        self._rules = rules
        self._ask = ask
        self._surveys = surveys

    async def transfer(self, command: Transfer) -> Result:
        """Take one step: what it counts is recorded, and arrives whatever becomes of this process."""
        # What dies again meanwhile comes to the end of the same log: the scan ends at what was there when it began.
        until, _, place = (command.scan or f"{await self._directory.now_ms()}-18446744073709551615 ").partition(" ")
        here = await self._read(command.node)
        if here is None:
            return GONE
        if here.affiliation(bare(command.sender)) is not Affiliation.OWNER:
            return Refused(Problem.FORBIDDEN, "only the node's owners may do this")
        refused = None if command.to is None else await self._barred(here, command)
        if refused is not None:
            return Refused(Problem.NOT_ACCEPTABLE, refused)
        count, passed, scan = 0, Counter[str](), ""
        for first in range(0, max(1, len(command.item_ids)), MOST_NAMED):
            named = command.item_ids[first : first + MOST_NAMED]
            survey = Survey(command.node, command.sender, named, min(command.limit, _MOST), place)
            found = await self._surveys.survey(survey, until)
            if not isinstance(found, Surveyed):
                return found
            scan = found.scan
            going, stayed = await self._sorted(here, command, found.items)
            passed += stayed
            for number, departures in going.items():
                outcome = await self._ask(TransferPart(command.node, command.sender, number, tuple(departures)))
                if not isinstance(outcome, Transferred):
                    assert isinstance(outcome, Refused)
                    return outcome
                count += outcome.count
                if outcome.count < len(departures):
                    passed["it has been handed out meanwhile"] += len(departures) - outcome.count
        return Transferred(count, dict(passed), f"{until} {scan}" if scan else "")

    async def _sorted(
        self, here: NodeRecord, command: Transfer, items: tuple[Seen, ...]
    ) -> tuple[dict[int, list[tuple[str, str, str]]], Counter[str]]:
        """Part what goes, by its partition, from what stays, by the reason."""
        going: dict[int, list[tuple[str, str, str]]] = {}
        passed: Counter[str] = Counter()
        barred: dict[str, str | None] = {}
        for item in items:
            headers = _headers(item.envelope)
            if command.reason and headers.get(DEAD_REASON) != command.reason:
                continue
            to = command.to or headers.get(DEAD_NODE)
            if to is None:
                why: str | None = "it is no dead letter"
            elif item.state not in {"waiting", "delayed"}:
                why = f"it is {item.state}"
            else:
                if to not in barred:
                    barred[to] = await self._barred(here, replace(command, to=to))
                why = barred[to]
            if why is None and to is not None:
                going.setdefault(item.partition, []).append((item.position, item.item_id, to))
            else:
                passed[str(why)] += 1
        return going, passed

    async def _barred(self, here: NodeRecord, command: Transfer) -> str | None:  # noqa: PLR0911  (a list of reasons)
        """Say why nothing may go from a node of the sender's to `to`, which has to be the sender's too."""
        to = command.to or ""
        if to == here.name:
            return "a node cannot take its own items"
        there = await self._read(to)
        if there is None:
            return f"there is no node {to!r}"
        if there.affiliation(bare(command.sender)) is not Affiliation.OWNER:
            return f"the node {to!r} is another's"
        if not here.config.queueing:
            return "the entries of a log stay where they are"
        if there.config.collects:
            return f"the node {to!r} is a collection"
        if there.config.state is NodeState.DRAINING:
            return f"the node {to!r} is being drained"
        return None

    async def _read(self, node: str) -> NodeRecord | None:
        record = await self._directory.read(node)
        return record and with_admins(record, self._rules.admins)

    async def carry(self, record: NodeRecord, partition: int, letter: list[Any]) -> bool:
        """Bring one item to its node; False leaves it on its way, to be taken up again."""
        position, item, publisher, envelope, attempts, holder, _reason, key = letter
        to = holder.removeprefix(MARK).decode()
        # Unique for ever, and the same whoever carries it however often.
        ticket = f"{record.incarnation}-{partition}-{position.decode()}"
        opened = _opened(envelope)
        # A dead letter that comes home is called as it was.
        home = opened.headers.get(DEAD_NODE) == to
        item_id = opened.headers.get(DEAD_ITEM, "") if home else item.decode()
        moved = codec.pack(_moved(opened, record.name, attempts))
        result = await self._ask(Admit(to, item_id or ticket, ticket, key.decode(), Jid(publisher.decode()), moved))
        if not isinstance(result, Published):
            problem = result.problem.value if isinstance(result, Refused) else type(result).__name__
            log.warning("item not transferred yet", node=record.name, item=item_id or ticket, to=to, problem=problem)
            return False
        await self._ask(Handed(record.name, record.incarnation, position.decode(), partition))
        return True


def _opened(envelope: bytes) -> Envelope:
    try:
        return codec.unpack(envelope)
    except CorruptRecord:
        # Even what nobody can read goes where it is sent.
        return Envelope(envelope, "application/octet-stream")


def _headers(envelope: bytes) -> dict[str, str]:
    return dict(_opened(envelope).headers)


def _moved(opened: Envelope, node: str, attempts: int) -> Envelope:
    """Add to an envelope where it comes from; what it tells of an earlier death stays."""
    before = opened.headers.get(MOVED_TIMES, "0")
    # A publisher may have written anything there.
    times = int(before) + 1 if before.isascii() and before.isdigit() and len(before) <= _TIMES_DIGITS else 1
    told = {MOVED_FROM: node, MOVED_ATTEMPTS: str(attempts), MOVED_TIMES: str(times)}
    return replace(opened, headers={**opened.headers, **told})
