"""Lets items wait until others, their parents, have ended.

A publish stores the item, which waits, in its partition. Then each parent's partition notes who waits, or tells how the parent
has ended; that is noted beside the item, and only then the publisher is answered. When a parent ends, the script that removes it
keeps its end until each dependent knows it: this module brings it there. Dependents that leave early tell nobody; a check of all
that wait finds them. Each step may be repeated, by whichever frontend a sweep announces it to, so a crash in between delays the
item and loses nothing. Must not know how an item ends.
"""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from broker import codec
from broker.model.commands import Publish
from broker.model.dependencies import RESULT_BYTES, ParentState
from broker.model.names import Jid, Partition, bare_jid
from broker.model.nodes import Affiliation, NodeRecord
from broker.model.outcomes import ItemOutcome
from broker.model.problems import CorruptRecord, Problem
from broker.model.results import Refused, Result
from broker.redis_core.commands.dependency_parts import (
    AllAwaited,
    Awaited,
    AwaitEnd,
    DependentStored,
    EndAwaited,
    FoundDependent,
    ListAwaited,
    NoteParent,
    ParentNoted,
    PublishDependent,
    ReadAwaited,
    ReadDependents,
    WhoAwaits,
)
from broker.redis_core.commands.internal import GONE, convert
from broker.redis_core.ports import HandlerPort
from broker.redis_core.records.store import NodeStore
from broker.redis_core.registry.authorization import may_await

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = structlog.get_logger()

_PAGE: Final = 100
"""Dependents that are told, or checked, together."""

_PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""How long a parent is waited for whose own publish is not finished."""

_GONE: Final = (Problem.NODE_NOT_FOUND, Problem.PARTITION_NOT_FOUND, Problem.UNSUPPORTED)
"""Refusals that prove that a node does not have an item."""

_UNKNOWN: Final = Awaited("unknown")

_PERHAPS: Final = Refused(Problem.UNAVAILABLE, "another process may have refused the item: publish it again")
"""The item is gone that a parent is missing of: it has been refused elsewhere, or its parents have ended, or it was cancelled."""


class DependencyService:
    """Publishes items that wait, and tells them how their parents end."""

    def __init__(self, store: NodeStore, core: HandlerPort) -> None:
        """Publish and tell through `core`."""
        self._store = store
        self._ask: Callable[[Any], Awaitable[Any]] = core.ask_partition
        self._background = core.background
        self._running: set[tuple[Partition, str]] = set()

    async def publish(self, command: Publish) -> Result:
        """Publish an item that waits; the answer says that all parents' partitions know it."""
        parents = await self._parents(command)
        if isinstance(parents, Refused) and parents.problem is not Problem.FORBIDDEN:
            return parents
        # A parent's node may have been deleted since the first publish; nobody learns whether it is that.
        known, refused = ((), parents) if isinstance(parents, Refused) else (tuple(parents), None)
        answer = await self._ask(replace(convert(command, PublishDependent, parents=known), refused=refused))
        if isinstance(answer, DependentStored):
            asked = ReadDependents(command.node, "", answer.partition, answer.published.item_id)
            found = await self._ask(asked)
            if isinstance(found, FoundDependent):
                return await self._finish(command.node, found) or answer.published
            answer = found
        assert isinstance(answer, Refused)
        return answer

    async def _parents(self, command: Publish) -> list[ParentState] | Refused:
        """Return the parents of a new item, which are in nodes of the same owner."""
        here = await self._store.read(command.node)
        if here is None:
            return GONE
        lives = {here.name: here.incarnation}
        found = []
        for parent in command.hints.after.parents:
            name = parent.node or here.name
            if (name, parent.item_id) == (here.name, command.item_id):
                return Refused(Problem.BAD_REQUEST, "an item cannot wait for itself")
            if name not in lives:
                there = await self._store.read(name)
                if (
                    there is None
                    or not _have_same_owner(here, there)
                    or not self._may_await(there, bare_jid(command.sender))
                ):
                    return Refused(
                        Problem.FORBIDDEN, f"the item cannot wait for items of the node {name!r}: it is another's"
                    )
                lives[name] = there.incarnation
            found.append(ParentState(parent.item_id, "" if name == here.name else name, lives[name], ""))
        if len({(each.node, each.item_id) for each in found}) < len(found):
            return Refused(Problem.BAD_REQUEST, "an item to wait for is named twice")
        return found

    def _may_await(self, there: NodeRecord, publisher: Jid) -> bool:
        return may_await(there.add_admins(self._store.admins), publisher)

    def follow(self, partition: Partition, mark: str) -> None:
        """Tell the dependents of an item, ask for the parents of one, or check who waits, unless that is under way."""
        if (partition, mark) not in self._running:
            self._running.add((partition, mark))
            self._background(lambda: self._follow(partition, mark))

    async def _follow(self, partition: Partition, mark: str) -> None:
        try:
            match mark[0]:
                case "+":
                    await self._tell_all(partition, mark[1:])
                case "*":
                    await self._resume(partition, mark[1:])
                case _:
                    await self._check_all(partition)
        finally:
            self._running.discard((partition, mark))

    async def _resume(self, child: Partition, position: str) -> None:
        found = await self._ask(ReadDependents(child.node, child.incarnation, child.number, position=position))
        if isinstance(found, FoundDependent):
            refused = await self._finish(child.node, found)
            if refused is not None:
                about = {"node": child.node, "partition": child.number, "position": position}
                log.warning("an item could not learn of its parents", **about, problem=refused.problem.value)

    async def _finish(self, node: str, child: FoundDependent) -> Refused | None:
        """Ask for all parents that have not ended, and note what became of them. Returns why the item does not wait for them."""
        left = [(index, parent) for index, parent in enumerate(child.parents) if not parent.ended]
        found = await asyncio.gather(*(self._await(node, child, index, parent) for index, parent in left))
        notes = []
        for (index, parent), each in zip(left, found, strict=True):
            if isinstance(each, Refused):
                return each
            note = _note(node, child, index, each)
            if each is not _UNKNOWN:
                notes.append(note)
                continue
            outcome = await self._ask(note)
            if isinstance(outcome, Refused):
                return outcome
            assert isinstance(outcome, ParentNoted)
            if outcome.gone and not parent.state:
                return _PERHAPS
            if outcome.refused:
                where = f" of the node {parent.node!r}" if parent.node else ""
                return Refused(
                    Problem.ITEM_NOT_FOUND,
                    f"there is no item {parent.item_id!r}{where} to wait for, nor a kept end of it: publish parents first, and"
                    " with keep (keep='1', Message-Keep, x-opt-stanzaq-keep, keep=True) if they may have ended by then",
                )
        outcomes = await asyncio.gather(*map(self._ask, notes))
        return next((each for each in outcomes if isinstance(each, Refused)), None)

    async def _await(self, node: str, child: FoundDependent, index: int, parent: ParentState) -> Awaited | Refused:
        """Let a parent's partition know who waits."""
        reference = _reference(node, child, index)
        named = (parent.node or node, parent.life, parent.item_id, reference)
        if parent.state:
            return await self._ask_for_end(AwaitEnd(*named, parent.token, parent.partition, register=True))
        for pause in _PAUSES:
            found = await self._ask_for_end(AwaitEnd(*named))
            if isinstance(found, Refused) or found.state in {"ended", "unknown"}:
                return found
            if found.state == "awaited":
                found = await self._ask_for_end(AwaitEnd(*named, partition=found.partition, register=True))
                if isinstance(found, Refused) or found.state != "unfinished":
                    return found
            await asyncio.sleep(pause)
        # It waits for an item that waits for it.
        return _UNKNOWN

    async def _ask_for_end(self, command: AwaitEnd) -> Awaited | Refused:
        found = await self._ask(command)
        if isinstance(found, Refused):
            return _UNKNOWN if found.problem in _GONE else found
        assert isinstance(found, Awaited)
        return _UNKNOWN if found.state == "unknown" else found

    async def _tell_all(self, parent: Partition, token: str) -> None:
        after = ""
        while True:
            page = await self._ask(ReadAwaited(parent.node, parent.incarnation, parent.number, token, after, _PAGE))
            if not isinstance(page, WhoAwaits) or page.outcome is None:
                return
            knows = await asyncio.gather(*(self._tell(each, page.outcome) for each in page.references))
            told = tuple(each for each, known in zip(page.references, knows, strict=True) if known)
            await self._ask(EndAwaited(parent.node, parent.incarnation, parent.number, token, told))
            if len(page.references) < _PAGE:
                return
            after = page.references[-1]

    async def _tell(self, reference: str, outcome: ItemOutcome) -> bool:
        """Tell one dependent; returns whether it knows the end, or is gone."""
        node, child, index = _read_reference(reference)
        noted = await self._ask(_end_of_parent(node, child, index, outcome))
        return not isinstance(noted, Refused) or noted.problem in _GONE

    async def _check_all(self, parent: Partition) -> None:
        """Remove dependents that have left before their parents ended.

        A child is stored before anybody notes that it waits, so one without a record has left, or knows all ends.
        """
        page = AllAwaited((), "")
        while True:
            page = await self._ask(ListAwaited(parent.node, parent.incarnation, parent.number, page.last, _PAGE))
            if not isinstance(page, AllAwaited) or not page.members:
                return
            left: dict[str, list[str]] = {}
            children = {reference: _read_reference(reference)[:2] for reference, _ in page.members}
            distinct = list(dict.fromkeys(children.values()))
            gone = dict(zip(distinct, await asyncio.gather(*(self._has_left(*each) for each in distinct)), strict=True))
            for reference, token in page.members:
                if gone[children[reference]]:
                    left.setdefault(token, []).append(reference)
            for token, references in left.items():
                await self._ask(EndAwaited(parent.node, parent.incarnation, parent.number, token, tuple(references)))

    async def _has_left(self, node: str, child: FoundDependent) -> bool:
        """Return whether an item waits for nothing any more."""
        found = await self._ask(ReadDependents(node, child.incarnation, child.partition, position=child.position))
        if isinstance(found, Refused):
            return found.problem in _GONE
        return isinstance(found, FoundDependent) and not found.position


def _reference(node: str, child: FoundDependent, index: int) -> str:
    """Name an item that waits, and which of its parents it waits for."""
    return f"{child.incarnation}/{child.partition}/{child.position}/{index}/{node}"


def _read_reference(reference: str) -> tuple[str, FoundDependent, int]:
    life, number, position, index, node = reference.split("/", 4)
    return node, FoundDependent(life, int(number), position), int(index)


def _note(node: str, child: FoundDependent, index: int, found: Awaited) -> NoteParent:
    if found.outcome is not None:
        return _end_of_parent(node, child, index, found.outcome)
    where = (node, child.incarnation, child.partition, child.position, index)
    return NoteParent(*where, found.state, found.partition, found.token)


def _end_of_parent(node: str, child: FoundDependent, index: int, outcome: ItemOutcome) -> NoteParent:
    where = (node, child.incarnation, child.partition, child.position, index)
    return NoteParent(*where, outcome.state.value, reason=outcome.reason, result=_text(outcome.envelope))


def _text(result: bytes) -> str:
    """Return a worker's result as a text for a header; empty if it is none, or too long."""
    try:
        body = codec.unpack(result).body if result else b""
        return body.decode() if len(body) <= RESULT_BYTES else ""
    except (CorruptRecord, UnicodeDecodeError):
        return ""


def _have_same_owner(one: NodeRecord, other: NodeRecord) -> bool:
    return any(
        other.affiliation(jid) is Affiliation.OWNER
        for jid, affiliation in one.affiliations.items()
        if affiliation is Affiliation.OWNER
    )
