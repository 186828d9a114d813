"""Lets items wait until others, their parents, have ended.

A publish stores the item, which waits, in its partition. Then each parent's partition notes who waits, or tells how the parent
has ended; that is noted beside the item, and only then the publisher is answered. The outboxes have what must be told later: to
each child how a parent has ended, to parents that a child has left early, and when a child asks for its parents again. Each
step may be repeated, by whichever frontend reads the entry. Must not know how an item ends.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import structlog

from broker import codec
from broker.model.commands import Publish
from broker.model.items.dependencies import RESULT_BYTES, ParentState, read_record
from broker.model.items.outcomes import ItemOutcome
from broker.model.names import Partition
from broker.model.problems import CorruptRecord, Problem
from broker.model.results import Refused, Result
from broker.redis_core.commands.dependency_parts import (
    Awaited,
    AwaitEnd,
    Child,
    DependentStored,
    NoteParent,
    ParentNoted,
    PublishDependent,
)
from broker.redis_core.commands.internal import GONE, convert
from broker.redis_core.commands.outbox import EndEntry, Entry, OutboxPage
from broker.redis_core.ports import HandlerPort
from broker.redis_core.records.store import NodeStore
from broker.redis_core.registry.authorization import may_await

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

log = structlog.get_logger()

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

    async def publish(self, command: Publish) -> Result:
        """Publish an item that waits; the answer says that all parents' partitions know it."""
        parents = await self._parents(command)
        if isinstance(parents, Refused) and parents.problem is not Problem.FORBIDDEN:
            return parents
        # A parent's node may have been deleted since the first publish; nobody learns whether it is that.
        known, refused = ((), parents) if isinstance(parents, Refused) else (tuple(parents), None)
        answer = await self._ask(replace(convert(command, PublishDependent, parents=known), refused=refused))
        if isinstance(answer, DependentStored):
            return await self._finish(command.node, answer.child) or answer.published
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
                    or not here.shares_owner(there)
                    or not may_await(there.add_roles(self._store.roles), command)
                ):
                    return Refused(
                        Problem.FORBIDDEN, f"the item cannot wait for items of the node {name!r}: it is another's"
                    )
                lives[name] = there.incarnation
            found.append(ParentState(parent.item_id, "" if name == here.name else name, lives[name], ""))
        if len({(each.node, each.item_id) for each in found}) < len(found):
            return Refused(Problem.BAD_REQUEST, "an item to wait for is named twice")
        return found

    async def ask_parents(self, partition: Partition, page: OutboxPage) -> None:
        """Ask for the parents of items that wait, whose publish was cut short, or whose parents may be lost."""
        await asyncio.gather(*(self._ask_parents(partition, entry) for entry in page.entries))

    async def _ask_parents(self, partition: Partition, entry: Entry) -> None:
        refused = await self._finish(partition.node, _read_child(partition, entry))
        if refused is not None:
            about = {"node": partition.node, "partition": partition.number, "position": entry.about}
            log.warning("an item could not learn of its parents", **about, problem=refused.problem.value)

    async def tell_children(self, partition: Partition, page: OutboxPage) -> None:
        """Tell items that wait how a parent has ended."""
        # Those of one parent follow each other, and the first one has its end.
        lines: Iterator[bytes] = accumulate(
            (entry.content[0] for entry in page.entries), lambda before, line: line or before
        )
        told = zip(page.entries, map(ItemOutcome.read, lines), strict=True)
        await asyncio.gather(*(self._tell_child(partition, entry, outcome) for entry, outcome in told))

    async def _tell_child(self, parent: Partition, entry: Entry, outcome: ItemOutcome) -> None:
        _token, _, reference = entry.about.partition("/")
        node, child, index = _read_reference(reference)
        noted = await self._ask(_end_of_parent(node, child, index, outcome))
        if not isinstance(noted, Refused) or noted.problem in _GONE:
            await self._ask(EndEntry.of(parent, entry.name))

    async def leave_parents(self, partition: Partition, page: OutboxPage) -> None:
        """Tell parents that items which waited for them have left."""
        await asyncio.gather(*(self._leave_parents(partition, entry) for entry in page.entries))

    async def _leave_parents(self, partition: Partition, entry: Entry) -> None:
        child = _read_child(partition, entry)
        known = [(index, each) for index, each in enumerate(child.parents) if each.state == "awaited"]
        told = await asyncio.gather(*(self._leave(partition.node, child, index, each) for index, each in known))
        if all(told):
            await self._ask(EndEntry.of(partition, entry.name))

    async def _leave(self, node: str, child: Child, index: int, parent: ParentState) -> bool:
        """Let a parent's partition forget who waits; returns whether it has, or is gone."""
        assert parent.partition is not None, "an awaited parent has a partition"
        name = f"child/{parent.token}/{_reference(node, child, index)}"
        ended = await self._ask(EndEntry(parent.node or node, parent.life, parent.partition, name))
        return not isinstance(ended, Refused) or ended.problem in _GONE

    async def _finish(self, node: str, child: Child) -> Refused | None:
        """Ask for all parents that have not ended, and note what became of them. Returns why the item does not wait for them."""
        left = [(index, parent) for index, parent in enumerate(child.parents) if not parent.ended]
        found = await asyncio.gather(*(self._await(node, child, index, parent) for index, parent in left))
        refused = next((each for each in found if isinstance(each, Refused)), None)
        if refused is not None:
            return refused
        known = [each for each in found if isinstance(each, Awaited)]
        notes = [_note(node, child, index, each) for (index, _), each in zip(left, known, strict=True)]
        for note, (_, parent) in zip(notes, left, strict=True):
            if note.state == _UNKNOWN.state and (refused := await self._note_unknown(note, parent)):
                await self._forget(node, child, notes)
                return refused
        rest = [note for note in notes if note.state != _UNKNOWN.state]
        outcomes = await asyncio.gather(*map(self._ask, rest))
        ended = [note for note, told in zip(rest, outcomes, strict=True) if isinstance(told, ParentNoted) and told.gone]
        await self._forget(node, child, ended)
        return next((each for each in outcomes if isinstance(each, Refused)), None)

    async def _note_unknown(self, note: NoteParent, parent: ParentState) -> Refused | None:
        """Note that a parent is not there; returns why the item is refused."""
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
        return None

    async def _forget(self, node: str, child: Child, notes: Iterable[NoteParent]) -> None:
        """Let parents' partitions forget an item that has left before this was noted beside it."""
        for note in notes:
            if note.state == "awaited":
                parent = replace(child.parents[note.index], partition=note.parent_partition, token=note.token)
                await self._leave(node, child, note.index, parent)

    async def _await(self, node: str, child: Child, index: int, parent: ParentState) -> Awaited | Refused:
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


def _read_child(partition: Partition, entry: Entry) -> Child:
    return Child(partition.incarnation, partition.number, entry.about, read_record(*entry.content))


def _reference(node: str, child: Child, index: int) -> str:
    """Name an item that waits, and which of its parents it waits for."""
    return f"{child.incarnation}/{child.partition}/{child.position}/{index}/{node}"


def _read_reference(reference: str) -> tuple[str, Child, int]:
    life, number, position, index, node = reference.split("/", 4)
    return node, Child(life, int(number), position), int(index)


def _note(node: str, child: Child, index: int, parent: Awaited) -> NoteParent:
    if parent.outcome is not None:
        return _end_of_parent(node, child, index, parent.outcome)
    where = (node, child.incarnation, child.partition, child.position, index)
    return NoteParent(*where, parent.state, parent.partition, parent.token)


def _end_of_parent(node: str, child: Child, index: int, outcome: ItemOutcome) -> NoteParent:
    where = (node, child.incarnation, child.partition, child.position, index)
    return NoteParent(*where, outcome.state.value, reason=outcome.reason, result=_text(outcome.envelope))


def _text(result: bytes) -> str:
    """Return a worker's result as a text for a header; empty if it is none, or too long."""
    try:
        body = codec.unpack(result).body if result else b""
        return body.decode() if len(body) <= RESULT_BYTES else ""
    except (CorruptRecord, UnicodeDecodeError):
        return ""
