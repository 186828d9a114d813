"""Calls on the outbox of a partition, and to the partition that takes an item from one."""

from typing import Final

from broker.model.nodes.nodes import NodeRecord
from broker.model.results import Done, Published, Refused
from broker.redis_core.commands.outbox import AcceptEntry, EndEntry, Entry, OutboxPage, ReadOutbox
from broker.redis_core.operations.items import DETAILS, intake
from broker.redis_core.operations.operation import Call, Fields, OperationReply, Values, by_name, refuse
from broker.scripts.answers import Answer

MOST: Final = 200
"""Entries that are read at once."""

MOST_BYTES: Final = 1_048_576
"""Payload that is read at once; a larger item is read alone."""

TICKET_MS: Final = 365 * 24 * 3_600_000
"""How long an arrived item's ticket is remembered, unless the old node has confirmed the arrival."""

LATE_MS: Final = 3_600_000
"""How long it is remembered after that: an operation may run late."""


def _read_arguments(_command: ReadOutbox, record: NodeRecord) -> Values:
    return {"dead_letters": record.dead_letter_target, "limit": MOST, "max_bytes": MOST_BYTES}


def _read_page(_command: ReadOutbox, reply: OperationReply, _record: NodeRecord) -> OutboxPage:
    page = reply.rows
    entries = tuple(Entry(each.name.decode(), each.attempt, tuple(each.content)) for each in page.entries)
    return OutboxPage(page.now_ms, entries, reply.more)


def _end_row(command: EndEntry, _record: NodeRecord) -> Values:
    return Fields(command, entry=command.name)


def _read_done(_command: object, answer: Answer, _record: NodeRecord) -> Done | Refused:
    return Done() if answer.code == b"ok" else refuse(answer.code)


def _accept_arguments(command: AcceptEntry, record: NodeRecord) -> Values:
    taken = {name: value for name, value in intake(command, record).items() if name != "publish_rate"}
    return taken | {"once_ms": TICKET_MS}


def _accept_row(command: AcceptEntry, _record: NodeRecord) -> Values:
    return Fields(command, item=command.item_id, by=command.publisher, body=command.envelope)


def _read_accepted(_command: AcceptEntry, answer: Answer, _record: NodeRecord) -> Published | Refused:
    if answer.code == b"node-full":
        return refuse(answer.code, DETAILS[answer.code])
    return Published(answer.item.decode(), duplicate=answer.code == b"duplicate")


read_outbox = Call(
    "read_outbox",
    _read_page,
    _read_arguments,
    rows=lambda command, _record: [{"held": node} for node in command.held],
)
end_entries = Call("end_entries", _read_done, row=_end_row)
accept_entry = Call("accept_entry", _read_accepted, _accept_arguments, _accept_row)
expire_tickets = Call(
    "expire_tickets",
    _read_done,
    lambda _command, _record: {"once_ms": LATE_MS},
    by_name,
)
