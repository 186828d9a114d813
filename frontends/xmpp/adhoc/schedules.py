"""Ad-hoc commands on the schedules of a node. Translates forms to commands, and results to text. Must not know the core."""

from collections.abc import Callable
from typing import Final

from broker import codec, payloads
from broker.model.commands import ListSchedules, PauseSchedule, PutSchedule, RemoveSchedule
from broker.model.names import ITEM_ID_BYTES
from broker.model.nodes.options import MAX_PAYLOAD_BYTES
from broker.model.nodes.schedules import FIELDS, ID_BYTES, Schedule, check_id
from broker.model.problems import MalformedRequest
from broker.model.results import Scheduled, ScheduleList
from frontends.xmpp import namespaces as ns
from frontends.xmpp.adhoc import commands, fields
from frontends.xmpp.adhoc.admin import write_form
from frontends.xmpp.adhoc.fields import Fields
from frontends.xmpp.stanzas import Iq, Question, View
from frontends.xmpp.xml import forms

_TEXT: Final = "text/plain; charset=utf-8"

MOST: Final = 100
"""The most schedules in a table."""

_NODE: Final = {"node": ("text-single", "Node", "")}
_ONE: Final = {**_NODE, "id": ("text-single", "Id of the schedule", "")}
_PAGE: Final = {**_NODE, "after": ("text-single", "Begin after the schedule with this id", "")}
_MADE: Final = {
    **_ONE,
    "cron": ("text-single", "Cron: minute, hour, day of month, month, day of week", ""),
    "zone": ("text-single", "Time zone of cron, such as Europe/Berlin; default: UTC", ""),
    "every": ("text-single", "Or an interval, such as 30s, 5m, 1h or 7d", ""),
    "start": ("text-single", "Start, such as 2026-12-01T09:00:00Z", ""),
    "end": ("text-single", "End", ""),
    "jitter": ("text-single", "Up to so much later, by chance, such as 5s", ""),
    "overlap": ("text-single", "While the last item is still there: queue or skip", "queue"),
    "catchup": ("text-single", "After an outage publish for none, the last or all of the missed times", "last"),
    "key": ("text-single", "Group key of the items", ""),
    "payload": ("text-multi", "Payload: JSON, or a text", ""),
}
_COLUMNS: Final = ("id", "cron", "zone", "every", "state", "next", "last", "published", "missed", "skipped")


def _list(iq: Iq, given: Fields) -> Question:
    fields.expect(given, _PAGE)
    after = fields.text(given, "after", ID_BYTES)
    return Question(iq, ListSchedules(fields.node(given, "node"), iq.sender, MOST, after), View.COMMAND)


def _make_or_replace(iq: Iq, given: Fields) -> Question:
    fields.expect(given, _MADE)
    said = {name: fields.text(given, name, 1_000) for name in FIELDS}
    try:
        schedule = Schedule.read({name: value for name, value in said.items() if value})
    except MalformedRequest as wrong:
        raise fields.field_fault(name="schedule", detail=wrong.detail) from None
    body = "\n".join(given.get("payload", ())).encode()
    if not 0 < len(body) <= MAX_PAYLOAD_BYTES:
        raise fields.field_fault(name="payload", detail=f"1 to {MAX_PAYLOAD_BYTES} bytes")
    try:
        payloads.check_json(body)
        kind = payloads.JSON
    except ValueError:
        kind = _TEXT
    envelope, key = codec.pack(payloads.make_envelope(body, kind, {})), fields.text(given, "key", ITEM_ID_BYTES)
    command = PutSchedule(fields.node(given, "node"), iq.sender, schedule, envelope, len(body), key)
    return Question(iq, command, View.COMMAND)


def _id(given: Fields) -> str:
    fields.expect(given, _ONE)
    try:
        return check_id(fields.text(given, "id", ID_BYTES))
    except MalformedRequest as wrong:
        raise fields.field_fault(name="id", detail=wrong.detail) from None


def _switch_command(*, paused: bool) -> Callable[[Iq, Fields], Question]:
    def submit(iq: Iq, given: Fields) -> Question:
        name = _id(given)
        return Question(iq, PauseSchedule(fields.node(given, "node"), iq.sender, name, paused), View.COMMAND)

    return submit


def _remove(iq: Iq, given: Fields) -> Question:
    name = _id(given)
    return Question(iq, RemoveSchedule(fields.node(given, "node"), iq.sender, name), View.COMMAND)


def write_schedules(iq: Iq, asked: ListSchedules, found: ScheduleList) -> bytes:
    """Write schedules as a table."""
    rows = ({**each.schedule.write(), **each.write_state()} for each in found.schedules)
    columns = (forms.Field(name, kind="text-single", label=name.capitalize()) for name in _COLUMNS)
    table = forms.table(
        ns.ADMIN_SCHEDULES, columns, ({name: row.get(name, "") for name in _COLUMNS} for row in rows), "Schedules"
    )
    more = f": the next page begins after {found.after}" if found.after else ""
    return commands.write_completed(
        iq, ns.ADMIN_SCHEDULES, f"{len(found.schedules)} schedules of {asked.node}{more}", table
    )


def write_changed(iq: Iq, asked: PutSchedule | PauseSchedule, outcome: Scheduled) -> bytes:
    """Write the new state of a schedule."""
    told = outcome.status.write_state()
    then = f", next at {told['next']}" if "next" in told else ""
    if isinstance(asked, PutSchedule):
        node = ns.ADMIN_SCHEDULE
    else:
        node = ns.ADMIN_PAUSE_SCHEDULE if asked.paused else ns.ADMIN_RESUME_SCHEDULE
    return commands.write_completed(iq, node, f"{outcome.status.schedule.id} is {told['state']}{then}")


def write_removed(iq: Iq, asked: RemoveSchedule) -> bytes:
    """Write that a schedule is deleted."""
    return commands.write_completed(iq, ns.ADMIN_UNSCHEDULE, f"{asked.id} is deleted; what it has published stays")


def _command(
    node: str, title: str, text: str, asked: dict[str, tuple[str, str, str]], submit: Callable[[Iq, Fields], Question]
) -> commands.Command:
    return commands.Command(node, title, node, write_form(node, title, text, asked), submit)


COMMANDS: Final = (
    _command(ns.ADMIN_SCHEDULES, "List the schedules of a node", "Choose the node.", _PAGE, _list),
    _command(
        ns.ADMIN_SCHEDULE,
        "Make or replace a schedule",
        "The node gets an item at each time, by cron or at an interval.",
        _MADE,
        _make_or_replace,
    ),
    _command(
        ns.ADMIN_PAUSE_SCHEDULE,
        "Pause a schedule",
        "Nothing is published until it is resumed, and no time is missed.",
        _ONE,
        _switch_command(paused=True),
    ),
    _command(
        ns.ADMIN_RESUME_SCHEDULE,
        "Resume a schedule",
        "It publishes again from its next time on.",
        _ONE,
        _switch_command(paused=False),
    ),
    _command(ns.ADMIN_UNSCHEDULE, "Delete a schedule", "Items that it has published stay.", _ONE, _remove),
)
