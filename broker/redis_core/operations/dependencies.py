"""Calls about items that wait for others, and about those that are waited for."""

from dataclasses import replace
from typing import Any

from broker.model.items.dependencies import read_record, record
from broker.model.items.outcomes import ItemOutcome
from broker.model.nodes.nodes import NodeRecord
from broker.model.results import Published, Refused
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


def _publish_row(command: PublishDependent, node: NodeRecord) -> Values:
    row = publish_row(command, node)
    told = record(command.parents, regardless=command.hints.after.regardless, once=str(row["once"]))
    return {**row, "hints": f"{command.hints.times} {reply_to(command)}\0{told}"}


def _read_stored(command: PublishDependent, reply: list[Any], node: NodeRecord) -> DependentStored | Refused:
    if reply[0] in {b"ok", b"duplicate"}:
        code, item, differs, (number, *where) = reply
        told = Published(item.decode(), duplicate=code == b"duplicate", differs=bool(differs))
        position, *text = where or [b""]
        return DependentStored(told, Child(node.incarnation, int(number), position.decode(), read_record(*text)))
    refused = read_published(command, reply, node)
    assert isinstance(refused, Refused)
    return refused


def _await_row(command: AwaitEnd, _record: NodeRecord) -> Values:
    return Fields(command, item=command.item_id)


def _read_awaited(_command: AwaitEnd, reply: list[Any], _record: NodeRecord) -> Awaited:
    state, *told = reply
    match state, told:
        case b"awaited", (number, token):
            return Awaited("awaited", int(number), token.decode())
        case b"ended", (number, line):
            return Awaited("ended", int(number), outcome=ItemOutcome.read(line))
    return Awaited(state.decode())


def _note_row(command: NoteParent, _record: NodeRecord) -> Values:
    # Lua counts from 1.
    return Fields(command, index=command.index + 1, partition=command.parent_partition)


def _read_noted(_command: NoteParent, reply: list[Any], _record: NodeRecord) -> ParentNoted:
    return ParentNoted(refused=reply[0] == b"unknown", gone=reply[0] == b"item-not-found")


publish_dependent = replace(publish, result=_read_stored, row=_publish_row)
await_end = Call("await_end", _read_awaited, row=_await_row)
note_parents = Call("note_parents", _read_noted, row=_note_row)
