"""Who owns which partition: attaches with and without a wish, heartbeats, and what follows when an owner comes or goes.

A script decides each attach by itself; here is only the order of several, and what is done again until nothing is left to
do. All of it is idempotent, so that any frontend may go on where another has stopped. Must not know credit or any door.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from broker.model.commands import Keep, Options, Subscribe
from broker.model.groups import DEFAULT_GROUP, share, spread
from broker.model.items import Notice, Owned, OwnershipGained, OwnershipLost
from broker.model.names import Jid
from broker.model.nodes import NodeRecord
from broker.model.problems import Problem
from broker.model.results import Kept, Refused, Result, Subscribed
from broker.redis_core.calls.call import subid, subids
from broker.redis_core.directory import Directory
from broker.redis_core.internal import EPOCH_NEXT, Ask, Attach, Detach, KeepOne, Leave, Left
from broker.redis_core.nodes import with_admins
from broker.redis_core.policy import refusal
from broker.redis_core.roster import Member, Roster, Standing

_ROUNDS = 10
"""How often a spread is computed anew at most when others change it meanwhile; the rest is left to the next visit."""

_GONE = Refused(Problem.NODE_NOT_FOUND, "there is no such node")
_FULL = Refused(Problem.TOO_MANY_SUBSCRIPTIONS, "the node has as many members of groups as it may")


def owns(command: Subscribe) -> bool:
    """Tell whether a subscription is to own what it asks for: a partition that is named is shared with nobody (E8, E10)."""
    asks = command.partitions or command.group or command.epoch is not None
    return bool(asks) and not command.start


Attend = Callable[[Subscribe, "asyncio.Future[Any]"], Awaitable[Result]]
"""Finishes a subscription that is under way: presence is to find it."""


class Around(Protocol):
    """What owners need of the core."""

    admins: frozenset[Jid]

    def notify(self, notice: Notice) -> None:
        """Hand a notice to the door."""


@dataclass(frozen=True, slots=True)
class _Move:
    """A partition that a member is to have, or (`given` False) is to have no more, for want of credit."""

    member: Member
    standing: Standing
    given: bool = True


class Owners:
    """Carries out what concerns the ownership of partitions."""

    def __init__(
        self, core: Around, roster: Roster, directory: Directory, ask: Ask, changed: Callable[[str], None]
    ) -> None:
        """Ask lanes by `ask`, which hear by `changed` that a node may have grown."""
        self._core = core
        self._directory = directory
        self._roster = roster
        self._ask = ask
        self._changed = changed

    async def hindrance(self, command: Subscribe) -> Refused | None:
        """Refuse what no attach is needed to refuse, and so nothing is changed for (E7, E26)."""
        record = await self._read(command.node)
        if record is None:
            return _GONE
        # Lanes may know the node as it was before it grew.
        self._changed(command.node)
        return refusal(command, record) or _misfit(command, record)

    async def subscribe(self, command: Subscribe, attend: Attend) -> Result:
        """Attach an owner: to all that it wishes for, or to none of it; or to what falls to it in its group.

        Its seat is taken by `attend`, once nothing hinders it.
        """
        return await self.hindrance(command) or await attend(command, asyncio.ensure_future(self._attach(command)))

    async def _attach(self, command: Subscribe) -> Result:
        record = await self._read(command.node)
        if record is None:
            return _GONE
        whose = subid(command.jid)
        had = {each.partition for each in await self._roster.standings(record) if each.subid == whose}
        return await (self._wished(command, record, had) if command.partitions else self._joined(command, record, had))

    async def keep(self, command: Keep) -> Result:
        """Renew the leases of all that the sender owns (EX16)."""
        record = await self._read(command.node)
        if record is None:
            return _GONE
        if refused := refusal(command, record):
            return refused
        return Kept(await self._kept(record, command.sender, subids(command.sender).split()))

    async def options(self, command: Options, outcome: asyncio.Future[Any]) -> Result:
        """Tell what a subscription owns; `outcome` is what the bank knows of it, which is nothing unless it shares the node."""
        record = await self._read(command.node)
        known: Result = await outcome
        if record is None or (isinstance(known, Refused) and known.problem is not Problem.NOT_SUBSCRIBED):
            return known
        member = await self._roster.member(command.node, command.jid)
        owned = await self._kept(record, command.jid, [subid(command.jid)])
        if not (member or owned):
            return known
        group = member.group if member else owned[0].group
        credit = member.credit if member else sum(each.credit for each in owned)
        return Subscribed(command.jid, subid(command.jid), credit, group=group, owned=owned)

    async def _kept(self, record: NodeRecord, sender: Jid, whose: Sequence[str]) -> tuple[Owned, ...]:
        mine = [each for each in await self._roster.standings(record) if each.subid in whose]
        kept = await asyncio.gather(*(self._ask(KeepOne(record.name, sender, each.partition)) for each in mine))
        return tuple(owned for owned in kept if isinstance(owned, Owned))

    async def left(self, node: str, jid: Jid) -> None:
        """Strike off one who has left and let others have what it owned."""
        record = await self._read(node)
        if record is not None and await self._roster.strike(record, jid):
            await self.settle(node)

    async def lost(self, notice: OwnershipLost) -> None:
        """Do what follows when a partition has been lost without its owner's doing."""
        record = await self._read(notice.node)
        if record is None:
            return
        member = await self._roster.member(notice.node, notice.subscriber)
        if member is not None and notice.reason in {"lapsed", "gone"}:
            # Who does not say that it is there leaves its group: else what it is given would wait for it again and again.
            await self._roster.strike(record, notice.subscriber)
            whose = subid(notice.subscriber)
            theirs = [each.partition for each in await self._roster.standings(record) if each.subid == whose]
            asked = [Detach(notice.node, notice.subscriber, number, notice.reason) for number in theirs]
            await asyncio.gather(*map(self._ask, asked))
        if notice.reason != "moved":
            await self.settle(notice.node)

    async def settle(self, node: str) -> None:
        """Spread partitions over the members of groups anew, until nothing is left to be handed over."""
        for _round in range(_ROUNDS):
            members = await self._roster.members(node)
            record = await self._read(node) if members else None
            if record is None:
                return
            standings = await self._roster.standings(record)
            if await self._divided(record, members, standings):
                continue
            moves = _moves(members, standings)
            if not any(await asyncio.gather(*(self._hand_over(record, move) for move in moves))):
                return

    async def _divided(self, record: NodeRecord, members: Mapping[str, Member], standings: Sequence[Standing]) -> bool:
        """Divide the credit of members anew whose node has grown; False when there is none.

        What such a member owns is handed over to itself: with all its locks ended, it holds nothing beyond its new part when
        it gets more partitions (guarantee 3).
        """
        count = record.config.partitions
        outgrown = [name for name, member in members.items() if member.share > share(member.credit, count)]
        for name in outgrown:
            member = replace(members[name], share=share(members[name].credit, count))
            theirs = [each for each in standings if each.subid == name and each.group == member.group]
            await asyncio.gather(*(self._hand_over(record, _Move(member, standing)) for standing in theirs))
            await self._roster.join(record, member)
        return bool(outgrown)

    async def _hand_over(self, record: NodeRecord, move: _Move) -> bool:
        """Let a member have a partition; False when there is nothing to be gained by thinking of it anew."""
        if not move.given:
            await self._ask(Detach(record.name, move.member.jid, move.standing.partition, "moved"))
            return False
        outcome = await self._ask(_attach(record.name, move))
        match outcome:
            case Owned():
                self._core.notify(OwnershipGained(record.name, move.member.jid, outcome))
                return True
            case Refused(problem=Problem.FORBIDDEN | Problem.CLOSED_NODE | Problem.TOO_MANY_SUBSCRIPTIONS):
                await self._roster.strike(record, move.member.jid)
                return True
        # It has changed hands meanwhile, or it is another's now.
        return isinstance(outcome, Refused) and outcome.problem is Problem.UNAVAILABLE

    async def _wished(self, command: Subscribe, record: NodeRecord, had: set[int]) -> Result:
        wish = sorted(set(command.partitions))
        attaches = [
            Attach(
                command.node,
                command.sender,
                command.jid,
                credit,
                command.qos,
                command.group or DEFAULT_GROUP,
                command.epoch,
                number,
            )
            for number, credit in zip(wish, _parts(_credit(command), len(wish)), strict=True)
        ]
        # Asked first, so that nobody is put out for a wish that cannot be met as a whole, nor gives up what it has.
        for outcome in await asyncio.gather(*(self._ask(replace(attach, dry=True)) for attach in attaches)):
            if isinstance(outcome, Refused):
                return outcome
        # Whoever names partitions is no longer one whose partitions the service chooses: else it was given back what it leaves.
        member = await self._roster.member(command.node, command.jid)
        if member is not None:
            await self._roster.strike(record, command.jid)
        # What was its own and is wished for no more goes first: its credit is to lie in the others.
        await self._detach(command, had.difference(wish))
        await self._unshare(command, had)
        outcomes = [await self._ask(attach) for attach in attaches]
        owned = tuple(outcome for outcome in outcomes if isinstance(outcome, Owned))
        if refused := next((outcome for outcome in outcomes if isinstance(outcome, Refused)), None):
            await self._detach(command, {each.partition for each in owned} - had)
            if member is not None:
                await self._roster.join(record, member)
                await self.settle(command.node)
            return refused
        if member is not None:
            await self.settle(command.node)
        return self._subscribed(command, owned)

    async def _joined(self, command: Subscribe, record: NodeRecord, had: set[int]) -> Result:
        credit = _credit(command)
        each = share(credit, record.config.partitions)
        member = Member(command.group, credit, each, command.qos, command.jid)
        if not await self._roster.join(record, member):
            return _FULL
        await self._unshare(command, had)
        whose = subid(command.jid)
        # What it had in another group is no part of its credit any more, and free.
        others = [found for found in await self._roster.standings(record) if found.group != command.group]
        await self._detach(command, {found.partition for found in others if found.subid == whose})
        await self.settle(command.node)
        mine = [found for found in await self._roster.standings(record) if found.subid == whose]
        # Without an epoch: what it had already goes on, with what it asks for now.
        attaches = [
            Attach(
                command.node, command.sender, command.jid, each, command.qos, command.group, None, standing.partition
            )
            for standing in mine
            if standing.group == command.group
        ]
        outcomes = await asyncio.gather(*map(self._ask, attaches))
        return self._subscribed(command, tuple(outcome for outcome in outcomes if isinstance(outcome, Owned)))

    async def _unshare(self, command: Subscribe, had: set[int]) -> None:
        """End the subscription of one who shared the node with others until now: a JID has one, and its credit once."""
        left = None if had else await self._ask(Leave(command.node, command.jid))
        while isinstance(left, Left) and left.held > 0:
            left = await self._ask(Leave(command.node, command.jid))

    async def _detach(self, command: Subscribe, partitions: set[int]) -> None:
        asked = [Detach(command.node, command.jid, number) for number in sorted(partitions)]
        await asyncio.gather(*map(self._ask, asked))

    def _subscribed(self, command: Subscribe, owned: tuple[Owned, ...]) -> Subscribed:
        group = command.group or DEFAULT_GROUP
        return Subscribed(command.jid, subid(command.jid), _credit(command), command.qos, group=group, owned=owned)

    async def _read(self, node: str) -> NodeRecord | None:
        record = await self._directory.read(node)
        return record and with_admins(record, self._core.admins)


def _credit(command: Subscribe) -> int:
    """Give the credit that an owner asks for: whoever asks for none has been refused."""
    return command.credit or 0


def _misfit(command: Subscribe, record: NodeRecord) -> Refused | None:  # noqa: PLR0911  (a table of cases)
    group, count = command.group or DEFAULT_GROUP, record.config.partitions
    unknown = [number for number in command.partitions if not 0 <= number < count]
    if not record.config.admits(group):
        return Refused(Problem.GROUP_NOT_FOUND, f"the node has no group {group}")
    if unknown:
        return Refused(Problem.PARTITION_NOT_FOUND, f"the node has no partition {unknown[0]}: it has {count}")
    if command.epoch is not None and not command.partitions:
        return Refused(Problem.OPTIONS_INVALID, "an epoch is of a partition: name it")
    if not record.config.queueing or command.start:
        return Refused(Problem.OPTIONS_INVALID, "a stream takes nothing from others, so its partitions are not owned")
    if command.credit is None:
        return Refused(Problem.OPTIONS_REQUIRED)
    if command.credit < len(set(command.partitions)):
        return Refused(Problem.OPTIONS_INVALID, "an owner has at least one credit for each of its partitions")
    return None


def _attach(node: str, move: _Move) -> Attach:
    member, standing = move.member, move.standing
    return Attach(
        node,
        member.jid,
        member.jid,
        member.share,
        member.qos,
        member.group,
        EPOCH_NEXT,
        standing.partition,
        standing.fence,
        "moved",
    )


def _parts(credit: int, count: int) -> list[int]:
    """Divide an owner's credit over its partitions, of which each has one at least."""
    least, over = divmod(credit, count)
    return [least + (place < over) for place in range(count)]


def _moves(members: dict[str, Member], standings: Sequence[Standing]) -> list[_Move]:
    """Give what has to be handed over, and to whom, so that each group's members have its partitions evenly."""
    moves = []
    for group in sorted({member.group for member in members.values()}):
        most = {name: member.most for name, member in members.items() if member.group == group}
        # What one who named it owns is not for others, nor what another group has (E26).
        theirs = {
            each.partition: each for each in standings if not each.subid or (each.subid in most and each.group == group)
        }
        given = spread(most, {number: each.subid or None for number, each in theirs.items()})
        for number, standing in theirs.items():
            name = given.get(number)
            if name is not None and name != standing.subid:
                moves.append(_Move(members[name], standing))
            elif name is None and standing.subid:
                moves.append(_Move(members[standing.subid], standing, given=False))
    return moves
