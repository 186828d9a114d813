"""Calls about items that wait for others, and about those that are waited for."""

from dataclasses import replace

from broker.model.items.dependencies import read_record, record
from broker.model.items.outcomes import ItemOutcome
from broker.model.nodes.nodes import NodeRecord
from broker.model.results import Refused
from broker.redis_core.commands.dependency_parts import (
    Awaited,
    AwaitEnd,
    Child,
    DependentStored,
    NoteParent,
    ParentNoted,
    PublishDependent,
)
from broker.redis_core.operations.items import publish, publish_row, read_published, reply_to
from broker.redis_core.operations.operation import Call, Fields, Values
from broker.scripts.answers import Answer


def _publish_row(command: PublishDependent, node: NodeRecord) -> Values:
    row = publish_row(command, node)
    told = record(command.parents, regardless=command.hints.after.regardless, once=str(row["once"]))
    return {**row, "hints": f"{command.hints.times} {reply_to(command)}\0{told}"}


def _read_stored(command: PublishDependent, answer: Answer, node: NodeRecord) -> DependentStored | Refused:
    told = read_published(command, answer, node)
    if isinstance(told, Refused):
        return told
    child = answer.dependent
    position = (child.position or b"").decode()
    return DependentStored(told, Child(node.incarnation, int(child.partition), position, read_record(child.parents)))


def _await_row(command: AwaitEnd, _record: NodeRecord) -> Values:
    return Fields(command, item=command.item_id)


def _read_awaited(_command: AwaitEnd, answer: Answer, _record: NodeRecord) -> Awaited:
    match answer.code:
        case b"awaited":
            return Awaited("awaited", int(answer.partition), answer.token.decode())
        case b"ended":
            return Awaited("ended", int(answer.partition), outcome=ItemOutcome.read(answer.outcome))
    return Awaited(answer.code.decode())


def _note_row(command: NoteParent, _record: NodeRecord) -> Values:
    # Lua counts from 1.
    return Fields(command, index=command.index + 1, partition=command.parent_partition)


def _read_noted(_command: NoteParent, answer: Answer, _record: NodeRecord) -> ParentNoted:
    return ParentNoted(refused=answer.code == b"unknown", gone=answer.code == b"item-not-found")


publish_dependent = replace(publish, result=_read_stored, row=_publish_row)
await_end = Call("await_end", _read_awaited, row=_await_row)
note_parents = Call("note_parents", _read_noted, row=_note_row)
