"""Bookkeeping for a node of several partitions: expected state from the commands, answers and deliveries that clients saw.

Also judges a snapshot of the node. Must not know Redis, nor how anything is done.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from broker.model.commands import (
    Command,
    Presence,
    Publish,
    Purge,
    Retract,
    SetSubscriptionOptions,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from broker.model.items.items import Delivery, Notice, OwnershipGained, OwnershipLost
from broker.model.names import Jid
from broker.model.results import Done, Published, Purged, Retracted, Subscribed, Unsubscribed
from tests.contract.snapshot import Seen, Snapshot

SHARED, WANTED, MEMBER = "shares the only partition", "owns what it named", "is a member of a group"


@dataclass(slots=True)
class Item:
    """An item, the version that follows when its lock ends, and the step in which it was published.

    The log keeps its first version, whose place it has.
    """

    body: bytes
    key: str
    since: int
    parked: bytes | None = None
    parked_since: int = 0
    first: bytes = b""

    def __post_init__(self) -> None:
        """Begin with the first version."""
        self.first = self.body

    def proceed(self) -> None:
        """Replace the item by its parked version."""
        if self.parked is not None:
            self.body, self.since, self.parked = self.parked, self.parked_since, None


@dataclass(slots=True)
class Taken:
    """A delivery that its receiver has not finished."""

    jid: Jid
    item: str
    token: int


@dataclass(frozen=True, slots=True)
class Given:
    """An item that was handed out: where, to whom, and its previous holder: nobody, or `None` if unknown."""

    number: int
    jid: Jid
    before: Jid | None


NOBODY = Jid("")


@dataclass(slots=True)
class Step:
    """What is particular about one step.

    `leavers` leave what they own, but for the partitions in `stays`; with `changes_owners` locks may end in any
    partition.
    Of a `vague` step no answers are known: it may have published `maybe`, and acknowledged `maybe_gone`. Items that
    subscribers in `finishing` free may be handed out before the answer is read.
    """

    vague: bool = False
    leavers: set[Jid] = field(default_factory=set)
    changes_owners: bool = False
    maybe: dict[bytes, str] = field(default_factory=dict)
    maybe_gone: set[tuple[int, str]] = field(default_factory=set)
    lost: list[OwnershipLost] = field(default_factory=list)
    gained: dict[tuple[int, int], Jid] = field(default_factory=dict)
    stays: dict[Jid, set[int]] = field(default_factory=dict)
    finishing: set[tuple[int, str, Jid]] = field(default_factory=set)
    given: list[Given] = field(default_factory=list)


class Ledger:
    """Keeps the books of one node."""

    def __init__(self, *, ordered: bool) -> None:
        """Begin with an empty node."""
        self.ordered = ordered
        self.items: dict[tuple[int, str], Item] = {}
        self.taken: dict[tuple[int, str], Taken] = {}
        self.kinds: dict[Jid, str] = {}
        self.granted: dict[Jid, int] = {}
        self.asked: dict[Jid, int] = {}
        self.had: Counter[Jid] = Counter()
        self.number = 0
        self.wrong: list[AssertionError] = []
        self.going: set[tuple[int, str]] = set()
        self.step = Step()
        self.commands: tuple[Command, ...] = ()
        self.holders: dict[tuple[int, str], Jid] = {}
        self.ahead: Counter[tuple[Jid, Jid]] = Counter()
        self.settled = False

    # Events, in the order in which clients see them.

    def begin(self, step: Step, *commands: Command) -> None:
        """Begin a step with these commands."""
        self.number += 1
        self.step, self.commands = step, commands
        for command in commands:
            match command:
                case Subscribe() | SetSubscriptionOptions():
                    self.asked[command.jid] = command.credit or 0
        acknowledged = {command.item_id for command in commands if isinstance(command, Retract)}
        self.going = {(number, name) for number, name, _ in step.finishing if name in acknowledged}
        for place, taken in list(self.taken.items()):
            if step.changes_owners or step.vague or (place[0], taken.item, taken.jid) in step.finishing:
                del self.taken[place]

    def hear(self, event: Callable[[], None]) -> None:
        """Record an event; a fault is reported at the end of the step, not to the caller."""
        try:
            event()
        except AssertionError as error:
            self.wrong.append(error)

    def delivered(self, delivery: Delivery) -> None:
        """Judge a delivery when it is made: nobody exceeds its credit, and nothing is held twice."""
        number, jid, token = delivery.partition.number, delivery.subscriber, delivery.token
        place = (number, delivery.position)
        known = self.taken.get(place)
        if known is not None and (known.jid, known.token) == (jid, token):
            assert self.step.vague, f"{delivery} was delivered twice"
            return
        # Where ownership changes, an item may be released and handed out again within the step.
        assert known is None or self.step.changes_owners, f"{delivery} while {known} holds it"
        item = self.items.get((number, delivery.item_id))
        if item is None:
            assert delivery.envelope in self.step.maybe, f"{delivery} of an item that is not there"
        else:
            self._comes(delivery, item)
        held = sum(taken.jid == jid for taken in self.taken.values())
        most = max(self.granted.get(jid, 0), self.asked.get(jid, 0))
        before = self.holders.get((number, delivery.item_id)) if delivery.attempt > 1 else NOBODY
        self.step.given.append(Given(number, jid, before))
        self.holders[number, delivery.item_id] = jid
        assert held < most or self.step.changes_owners, f"{jid} holds {held} of {most} and gets {delivery}"
        self.taken[place] = Taken(jid, delivery.item_id, token)

    def _comes(self, delivery: Delivery, item: Item) -> None:
        # Where a frontend dies, its deliveries are sent again, and a later version still waits behind it.
        if not (self.step.vague and delivery.envelope == item.body):
            item.proceed()
        assert delivery.envelope == item.body or delivery.envelope in self.step.maybe, (delivery, item)
        if self.ordered and item.key and not self.step.vague:
            number = delivery.partition.number
            group = [one for name, one in self._group(number, item.key).items() if (number, name) not in self.going]
            ahead = [one for one in group if one.since < item.since]
            assert not ahead, f"{delivery} came before {ahead}"
            held = [t for (at, _), t in self.taken.items() if at == number and self._key(at, t.item) == item.key]
            assert not held or self.step.changes_owners, f"{delivery} while {held} of its group is worked on"

    def _group(self, number: int, key: str) -> dict[str, Item]:
        return {name: item for (at, name), item in self.items.items() if at == number and item.key == key}

    def _key(self, number: int, name: str) -> str:
        item = self.items.get((number, name))
        return item.key if item else ""

    def noticed(self, notice: Notice) -> None:
        """Record a notice."""
        match notice:
            case OwnershipLost():
                self.step.lost.append(notice)
            case OwnershipGained():
                self.step.gained[notice.owned.partition, notice.owned.fence] = notice.subscriber

    def answered(self, command: Command, number: int | None, result: Any) -> None:  # noqa: ANN401  (any outcome)
        """Record the answer to a command; `number` is the partition of its item."""
        match command, result:
            case Publish(), Published(item_id=name):
                at = int(name.split("-")[0]) if number is None else number
                self._published(at, name, command)
            case Retract(), Retracted():
                assert number is not None
                self.retracted(number, command.item_id)
            case Purge(), Purged():
                held = {(at, taken.item) for (at, _), taken in self.taken.items()}
                waiting = [place for place in self.items if place not in held]
                assert result.count == len(waiting), (result, waiting)
                for place in waiting:
                    del self.items[place]
            case Subscribe(), Subscribed():
                self.kinds[command.jid] = (WANTED if command.partitions else MEMBER) if result.group else SHARED
                self.granted[command.jid] = result.credit
                self.step.gained |= {(each.partition, each.fence): command.jid for each in result.owned}
            case SetSubscriptionOptions(), Subscribed():
                self.granted[command.jid] = result.credit
            case Unsubscribe(), Unsubscribed():
                self.left(command.jid)
            case Presence(available=False), Done():
                self.left(command.sender)

    def left(self, jid: Jid) -> None:
        """Record that a subscription has ended."""
        self.kinds.pop(jid, None)
        self.granted.pop(jid, None)

    def retracted(self, number: int, name: str) -> None:
        """Record that an item is gone, or that its parked version replaces it."""
        item = self.items[number, name]
        if item.parked is None:
            del self.items[number, name]
        item.proceed()
        item.first = item.body

    def _published(self, number: int, name: str, command: Publish) -> None:
        item = self.items.get((number, name))
        if item is None:
            self.items[number, name] = Item(command.envelope, command.key, self.number)
        elif any((at, taken.item) == (number, name) for (at, _), taken in self.taken.items()):
            item.parked, item.parked_since = command.envelope, self.number
        else:
            item.body = command.envelope

    # What a snapshot of the node must show when nothing is under way.

    def judge(self, before: Snapshot, after: Snapshot, now: int) -> None:
        """Compare the books with a snapshot, then continue from it."""
        for error in self.wrong:
            raise error
        self._lapsed(before, now)
        self._items(after)
        self._locks(before, after, now)
        self._ownership(before, after)
        self._told(before, after)
        if not self.step.vague:
            self._members(after)
            self._credit(before, after)
            self._starvation(after)
        self._fairness(before, after)
        self.asked.clear()
        self.had = _held(after)

    def _lapsed(self, before: Snapshot, now: int) -> None:
        for part in before.parts:
            if part.tenure and part.tenure.lease <= now:
                self.step.leavers.add(part.tenure.jid)
                if self.kinds.get(part.tenure.jid) == MEMBER:
                    self.left(part.tenure.jid)

    def _items(self, after: Snapshot) -> None:
        found = {(n, name): seen for n, part in enumerate(after.parts) for name, seen in part.items.items()}
        for place in found.keys() - self.items.keys():
            assert found[place][1] in self.step.maybe, f"{place} is there and was not published, or was acknowledged"
            body = found[place][1]
            self.items[place] = Item(body, self.step.maybe[body], self.number)
        for place in self.items.keys() - found.keys():
            assert place in self.step.maybe_gone, f"{place} is lost"
            del self.items[place]
        for place, (state, body) in found.items():
            item = self.items[place]
            if state != "locked":
                item.proceed()
            if body == item.parked and place in self.step.maybe_gone:
                item.proceed()
                item.first = body
            assert body == item.body, (place, state, body, item)

    def _locks(self, before: Snapshot, after: Snapshot, now: int) -> None:
        names = [{held.item for held in part.locks.values()} for part in after.parts]
        for number, part in enumerate(after.parts):
            was = before.parts[number] if number < len(before.parts) else None
            assert names[number] == {name for name, (state, _) in part.items.items() if state == "locked"}
            assert len(names[number]) == len(part.locks), "an item has two locks"
            for position, held in part.locks.items():
                taken = self.taken.get((number, position))
                old = was.locks.get(position) if was else None
                same = taken and (taken.jid, taken.item, taken.token) == (held.jid, held.item, held.token)
                kept = old and old.token == held.token and (self.step.changes_owners or self.step.vague)
                assert same or kept or self.step.vague, f"{held} in {number} was never delivered: {taken}"
                assert held.token > part.fence, f"{held} is from before the fence {part.fence}"
                assert held.deadline > now, f"{held} is over"
                assert part.tenure is None or part.tenure.jid == held.jid, f"{held} in {number}, owned by {part.tenure}"
            for (at, position), taken in self.taken.items():
                if at == number and position not in part.locks:
                    ended = taken.jid in self.step.leavers or self.step.changes_owners or self.step.vague
                    assert ended, f"{taken} in {number} was ended by nobody"
            if was is None:
                continue
            for position, held in was.locks.items():
                if position not in part.locks and self.step.changes_owners and not self.step.vague:
                    owner = was.tenure.jid if was.tenure else None
                    left = held.jid in self.step.leavers or part.fence > was.fence or owner == held.jid
                    assert left or held.deadline <= now, f"{held} in {number} was ended by nobody"
        self.taken = {
            (number, position): Taken(held.jid, held.item, held.token)
            for number, part in enumerate(after.parts)
            for position, held in part.locks.items()
        }

    def _ownership(self, before: Snapshot, after: Snapshot) -> None:
        """EX11, EX13: fences never fall, each owner has one of its own, and force takes a higher epoch."""
        for number, (old, new) in enumerate(zip(before.parts, after.parts, strict=False)):
            assert new.fence >= old.fence
            if new.tenure and (old.tenure is None or old.tenure.jid != new.tenure.jid):
                assert new.fence > old.fence, f"{new.tenure} has {number} under the fence of {old.tenure}"
            stolen = [lost for lost in self.step.lost if (lost.partition, lost.reason) == (number, "stolen")]
            if stolen and new.tenure and old.tenure and old.tenure.jid not in self.step.leavers:
                assert new.epochs[new.tenure.group][0] > old.epochs[old.tenure.group][0]

    def _told(self, before: Snapshot, after: Snapshot) -> None:
        """E28: whoever has lost a partition without leaving it gets a notice."""
        had = {(n, part.fence): part.tenure.jid for n, part in enumerate(before.parts) if part.tenure}
        has = {(n, part.fence): part.tenure.jid for n, part in enumerate(after.parts) if part.tenure}
        told = Counter((lost.partition, lost.fence, lost.subscriber) for lost in self.step.lost)
        for (number, fence), jid in (had | self.step.gained).items():
            still = has.get((number, fence)) == jid
            hears = told[number, fence, jid]
            assert not (still and hears), f"{jid} heard that it lost {number}, which it has"
            silent = jid in self.step.leavers and number not in self.step.stays.get(jid, ())
            assert still or hears == 1 or silent or self.step.vague, f"{jid} lost {number} under {fence}: told {hears}"

    def _members(self, after: Snapshot) -> None:
        """E10, EX19: partitions are spread evenly over members, and none is free while a member may have one more."""
        owned = Counter(part.tenure.jid for part in after.parts if part.tenure)
        for jid, kind in list(self.kinds.items()):
            if kind == WANTED and not owned[jid]:
                self.left(jid)
        assert set(after.members) == {jid for jid, kind in self.kinds.items() if kind == MEMBER}
        free = [number for number, part in enumerate(after.parts) if part.tenure is None]
        for member in after.members.values():
            assert owned[member.jid] <= member.most, f"{member} has {owned[member.jid]}"
            assert not free or owned[member.jid] == member.most, f"{member} may have one of {free}"
            for other in after.members.values():
                uneven = member.group == other.group and owned[other.jid] > owned[member.jid] + 1
                assert not uneven or owned[member.jid] == member.most, f"{other} has more than {member}"
        for number, part in enumerate(after.parts):
            assert part.tenure is None or part.tenure.jid in self.kinds, f"{part.tenure} of {number} has left"

    def _credit(self, before: Snapshot, after: Snapshot) -> None:
        """Guarantee 3: nobody exceeds its credit; free and used credit together are the granted credit."""
        old, held, claims = _held(before), _held(after), _claims(after)
        for jid in held | claims:
            most = self.granted.get(jid, 0)
            assert held[jid] <= max(most, old[jid]), f"{jid} holds {held[jid]} of {most}"
            most = max(most, held[jid])
            assert claims[jid] <= most, f"{jid} may come to hold {claims[jid]} of {most}: {self._where(after, jid)}"
            exact = self.kinds.get(jid) == SHARED
            assert not exact or claims[jid] == most, f"of {most} {jid} has {claims[jid]}: {self._where(after, jid)}"

    @staticmethod
    def _where(after: Snapshot, jid: Jid) -> list[int | None]:
        return [part.limits.get(jid) for part in after.parts]

    def _starvation(self, after: Snapshot) -> None:
        """No partition waits while somebody who may take its items has credit."""
        held = _held(after)
        for number, part in enumerate(after.parts):
            waits = [name for name in part.items if self._ready(number, name, part)]
            if not waits:
                continue
            if part.tenure:
                owner = part.tenure.jid
                here = sum(lock.jid == owner for lock in part.locks.values())
                assert here >= part.limits[owner], f"{owner} may take {waits} in {number}"
            else:
                free = [j for j, kind in self.kinds.items() if kind == SHARED and held[j] < self.granted[j]]
                places = {jid: self._where(after, jid) for jid in free}
                assert not free, f"{waits} wait in {number} for {places}"

    def _fairness(self, before: Snapshot, after: Snapshot) -> None:
        """Guarantee 9, Q30, Q35: the last served is the last in turn, and an item that came back goes to another.

        While a subscriber has free credit all the time, nobody gets two items more than it, except for items that it
        gave back itself, and items of owners.
        """
        vague = self.step.vague or not self.settled or len(before.parts) != len(after.parts)
        self.settled = not self.step.vague
        if self.step.vague:
            self.holders.clear()
        if vague or (self.step.changes_owners and (_owned(before) or _owned(after))):
            self.ahead.clear()
            return
        given = [each for each in self.step.given if after.parts[each.number].tenure is None]
        had, got = _held(before), Counter(each.jid for each in self.step.given)
        in_order = len(self.commands) == 1 and isinstance(self.commands[0], Publish | Retract | Unlock)
        idle = {
            jid
            for jid, kind in self.kinds.items()
            if kind == SHARED and jid not in self.asked and had[jid] + got[jid] < self.granted[jid]
        }
        for each in given if in_order else ():
            others = idle - {each.jid}
            assert each.before != each.jid or not others, f"{each} gave it back, and {others} could have had it"
        ahead: Counter[tuple[Jid, Jid]] = Counter()
        for idler in idle:
            served = sum(each.jid == idler for each in given)
            for other in self.kinds.keys() - self.asked.keys() - {idler}:
                more = sum(each.jid == other and each.before not in {idler, None} for each in given)
                turns = self.ahead[other, idler] + more - served
                assert turns <= 1, f"{other} had {turns} more than {idler}, which was idle: {given}"
                ahead[other, idler] = min(max(turns, 0), 1)
        self.ahead = ahead

    def _ready(self, number: int, name: str, part: Seen) -> bool:
        if part.items[name][0] != "waiting":
            return False
        item = self.items[number, name]
        rivals = [one for one in self._group(number, item.key).values() if one is not item]
        return not (self.ordered and item.key) or all(one.since > item.since for one in rivals)


def _owned(snapshot: Snapshot) -> bool:
    return bool(snapshot.members) or any(part.tenure for part in snapshot.parts)


def _held(snapshot: Snapshot) -> Counter[Jid]:
    return Counter(held.jid for part in snapshot.parts for held in part.locks.values())


def _claims(snapshot: Snapshot) -> Counter[Jid]:
    """Count what each may come to hold: its credit in each partition, or what it holds there beyond that."""
    total: Counter[Jid] = Counter()
    for part in snapshot.parts:
        held = Counter(lock.jid for lock in part.locks.values())
        total.update({jid: max(part.limits.get(jid, 0), held[jid]) for jid in held | Counter(part.limits)})
    return total


def granted_epoch(part: Seen, jid: Jid, group: str, asked: int | None, now: int) -> tuple[int, bool] | None:
    """Return the epoch of an attach, and whether it continues the present one; None when it must be refused (EX13 to EX15)."""
    owner = part.tenure
    epoch, kept = part.epochs.get(group, (0, 0))
    recorded = epoch if (owner and owner.group == group) or kept > now else None
    if owner and owner.group != group:
        return None
    if owner and owner.jid == jid and asked is None:
        return epoch, True
    if asked is None:
        return None if owner else ((recorded or 0) + 1, False)
    return (asked, False) if recorded is None or asked > recorded else None
