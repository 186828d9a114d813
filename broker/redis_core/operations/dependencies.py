"""Calls about items that wait for others, and about those that are waited for."""

from dataclasses import replace
from typing import Any

from broker.model.dependencies import read_record, record
from broker.model.nodes import NodeRecord
from broker.model.outcomes import ItemOutcome
from broker.model.results import Done, Published, Refused
from broker.redis_core.commands.dependency_parts import (
    AllAwaited,
    Awaited,
    AwaitEnd,
    DependentStored,
    FoundDependent,
    ListAwaited,
    NoteParent,
    ParentNoted,
    PublishDependent,
    ReadAwaited,
    ReadDependents,
    WhoAwaits,
)
from broker.redis_core.operations.items import publish, publish_row, read_published, reply_to
from broker.redis_core.operations.operation import Call, ScriptReply, Values


def _publish_row(command: PublishDependent, node: NodeRecord) -> Values:
    row = publish_row(command, node)
    told = record(command.parents, regardless=command.hints.after.regardless, once=str(row["once"]))
    return {**row, "hints": f"{command.hints.times} {reply_to(command)}\0{told}"}


def _read_stored(command: PublishDependent, reply: list[Any], node: NodeRecord) -> DependentStored | Refused:
    if reply[0] in {b"ok", b"duplicate"}:
        code, item, differs, number = reply
        told = Published(item.decode(), duplicate=code == b"duplicate", differs=bool(differs))
        return DependentStored(told, int(number))
    refused = read_published(command, reply, node)
    assert isinstance(refused, Refused)
    return refused


def _read_found(_command: ReadDependents, reply: list[Any], node: NodeRecord) -> FoundDependent:
    if len(reply) == 1:
        return FoundDependent(node.incarnation)
    _, number, position, text = reply
    return FoundDependent(node.incarnation, int(number), position.decode(), read_record(text))


def _await_row(command: AwaitEnd, _record: NodeRecord) -> Values:
    return {
        "item": command.item_id,
        "reference": command.reference,
        "token": command.token,
        "register": "1" if command.register else "",
    }


def _read_awaited(_command: AwaitEnd, reply: list[Any], _record: NodeRecord) -> Awaited:
    state, *told = reply
    match state, told:
        case b"awaited", (number, token):
            return Awaited("awaited", int(number), token.decode())
        case b"ended", (number, line):
            return Awaited("ended", int(number), outcome=ItemOutcome.read(line))
    return Awaited(state.decode())


def _note_row(command: NoteParent, _record: NodeRecord) -> Values:
    return {
        "position": command.position,
        # Lua counts from 1.
        "index": command.index + 1,
        "state": command.state,
        "partition": command.parent_partition,
        "token": command.token,
        "reason": command.reason,
        "result": command.result,
    }


def _read_noted(_command: NoteParent, reply: list[Any], _record: NodeRecord) -> ParentNoted:
    return ParentNoted(refused=reply[0] == b"unknown", gone=reply[0] == b"item-not-found")


def _read_arguments(command: ReadAwaited, _record: NodeRecord) -> Values:
    return {"token": command.token, "after": command.after, "limit": command.limit}


def _read_who_awaits(_command: ReadAwaited, reply: ScriptReply, _record: NodeRecord) -> WhoAwaits:
    if not reply.rows:
        return WhoAwaits()
    line, references = reply.rows
    return WhoAwaits(ItemOutcome.read(line), tuple(each.decode() for each in references))


def _list_arguments(command: ListAwaited, _record: NodeRecord) -> Values:
    return {"after": command.after, "limit": command.limit}


def _read_all_awaited(_command: ListAwaited, reply: ScriptReply, _record: NodeRecord) -> AllAwaited:
    found = [each.decode() for each in reply.rows]
    split = (each.rpartition("\0") for each in found)
    return AllAwaited(tuple((reference, token) for reference, _, token in split), found[-1] if found else "")


publish_dependent = replace(publish, result=_read_stored, row=_publish_row)
read_dependents = Call(
    "read_dependents", _read_found, row=lambda command, _record: {"item": command.item_id, "position": command.position}
)
await_end = Call("await_end", _read_awaited, row=_await_row)
note_parents = Call("note_parents", _read_noted, row=_note_row)
read_awaited = Call("read_awaited", _read_who_awaits, _read_arguments)
list_awaited = Call("list_awaited", _read_all_awaited, _list_arguments)
end_awaited = Call(
    "end_awaited",
    lambda _command, _reply, _record: Done(),
    lambda command, _record: {"token": command.token},
    rows=lambda command, _record: [{"reference": each} for each in command.references],
)
