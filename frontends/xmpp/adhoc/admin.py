"""Ad-hoc commands of administrators and owners that take one step.

These are overview, pause, resume, drain, release, and disconnect, whose form lists the frontends. Translates forms to commands,
and results to text. Must not know how commands are executed.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from broker.model.commands import Configure, Disconnect, Frontends, Overview, Release
from broker.model.nodes.options import NodeState
from broker.model.results import Disconnected, FrontendList, FrontendStatus, Overviewed, Released, Summary
from broker.model.roles import Role
from frontends.xmpp import namespaces as ns
from frontends.xmpp.adhoc import commands, fields
from frontends.xmpp.adhoc.fields import Fields
from frontends.xmpp.stanzas import DoorAnswer, Iq, Question, View
from frontends.xmpp.xml import forms

OVERVIEW_MOST: Final = 100
"""The most nodes in a table: with the longest names it reaches the size limit of a reply."""

_OVERVIEW_DEFAULT: Final = 50
_FIRST_MOST: Final = 10**9
_RELEASED_MOST: Final = 200
_NAME_BYTES: Final = 64
_STATE: Final = "stanzaq#state"

_SWITCHES: Final = {
    NodeState.PAUSED: ns.ADMIN_PAUSE,
    NodeState.RUNNING: ns.ADMIN_RESUME,
    NodeState.DRAINING: ns.ADMIN_DRAIN,
}

_COLUMNS: Final = {
    "node": "Node",
    "state": "State",
    "partitions": "Partitions",
    "waiting": "Waiting",
    "in_flight": "In flight",
    "delayed": "Delayed",
    "dying": "Dying",
    "subscribers": "Subscribers",
    "oldest_ms": "Oldest waits, ms",
}


def write_nodes(question: Question, asked: Overview, found: Overviewed) -> bytes:
    """Write the nodes as a table, and where the next page begins."""
    columns = (forms.Field(name, kind="text-single", label=label) for name, label in _COLUMNS.items())
    table = forms.table(ns.ADMIN_OVERVIEW, columns, map(_row, found.nodes), "Nodes")
    after = asked.first + asked.limit
    note = f"{found.total} nodes" + (f": the next page begins with first {after}" if after < found.total else "")
    return commands.write_completed(question.iq, ns.ADMIN_OVERVIEW, note, table)


def write_configured(question: Question, change: Configure) -> bytes:
    """Write the new state of a node."""
    (state,) = change.options[_STATE]
    return commands.write_completed(question.iq, _SWITCHES[NodeState(state)], f"{change.node} is {state}")


def write_released(question: Question, outcome: Released) -> bytes:
    """Write how many locks were ended."""
    return commands.write_completed(question.iq, ns.ADMIN_RELEASE, f"released {outcome.count}")


def write_frontends(iq: Iq, outcome: FrontendList | Disconnected) -> bytes:
    """Write the form to choose a frontend to disconnect, with the state of each; or that one is disconnected."""
    if isinstance(outcome, FrontendList):
        return commands.write_executing(iq, ns.ADMIN_DISCONNECT, _choice(outcome))
    note = "disconnected" if outcome.listed else "it is not in the list; if it is still running, it will end"
    return commands.write_completed(iq, ns.ADMIN_DISCONNECT, note)


def _choice(found: FrontendList) -> str:
    # Other doors have no deliveries to take over.
    sending = [each for each in found.frontends if each.door == "xmpp"]
    names = tuple(each.name for each in sending)
    field = forms.Field("frontend", kind="list-single", label="Frontend", choices=names, required=True)
    known = "; ".join(map(_describe_frontend, sending))
    text = f"The others take over its unsent deliveries at once; if it is still running, it drains and ends. {known}."
    return forms.write_form("form", ns.ADMIN_DISCONNECT, (field,), _DISCONNECT_TITLE, text)


def _describe_frontend(one: FrontendStatus) -> str:
    what = f"disconnected by {one.disconnected_by}" if one.disconnected_by else "heard of"
    return f"{one.name}: {what} {one.ago_ms} ms ago"


def _row(one: Summary) -> dict[str, str]:
    config, counted = one.record.config, one.counted
    return {
        "node": one.record.name,
        "state": config.state.value,
        "partitions": str(config.partitions),
        "waiting": str(counted.waiting),
        "in_flight": str(counted.in_flight),
        "delayed": str(counted.delayed),
        "dying": str(counted.dying),
        "subscribers": str(counted.subscribers),
        "oldest_ms": str(counted.oldest_ms),
    }


def write_form(
    node: str, title: str, instructions: str, asked: Mapping[str, tuple[str, str, str]]
) -> Callable[[Iq], DoorAnswer]:
    """Return the first step of a command, its form: each field by its kind, label and default."""
    form = forms.write_form("form", node, _empty(asked), title, instructions)
    return lambda iq: DoorAnswer(iq, commands.write_executing(iq, node, form))


def _empty(asked: Mapping[str, tuple[str, str, str]]) -> Iterator[forms.Field]:
    for name, (kind, label, default) in asked.items():
        yield forms.Field(name, (default,) if default else (), kind, label, required=name in {"node", "to"})


_PAGE: Final = {
    "first": ("text-single", "Begin with this one in order of creation; the first is 0", "0"),
    "limit": ("text-single", f"Most nodes to list, 1 to {OVERVIEW_MOST}", str(_OVERVIEW_DEFAULT)),
}
_NODE: Final = {"node": ("text-single", "Node", "")}
_LOCKS: Final = {
    **_NODE,
    "items": ("text-multi", f"Ids of items, one a line, at most {_RELEASED_MOST}", ""),
    "holder": ("jid-single", "Or a JID: all items that it holds; a bare JID includes its resources", ""),
}


def _overview(iq: Iq, given: Fields) -> Question:
    fields.expect(given, _PAGE)
    first = fields.number(given, "first", 0, _FIRST_MOST, 0)
    limit = fields.number(given, "limit", 1, OVERVIEW_MOST, _OVERVIEW_DEFAULT)
    return Question(iq, Overview(iq.sender, first, limit))


def _setting(state: NodeState) -> Callable[[Iq, Fields], Question]:
    def submit(iq: Iq, given: Fields) -> Question:
        fields.expect(given, _NODE)
        return Question(iq, Configure(fields.node(given, "node"), iq.sender, {_STATE: (state.value,)}), View.COMMAND)

    return submit


def _release(iq: Iq, given: Fields) -> Question:
    fields.expect(given, _LOCKS)
    node = fields.node(given, "node")
    items, holder = fields.items(given, "items", _RELEASED_MOST), fields.jid(given, "holder")
    if bool(items) == bool(holder):
        raise fields.field_fault(name="items", detail="name either items or a holder")
    return Question(iq, Release(node, iq.sender, items, holder))


def _disconnect(iq: Iq, given: Fields) -> Question:
    fields.expect(given, ("frontend",))
    name = fields.text(given, "frontend", _NAME_BYTES)
    if not name:
        raise fields.field_fault(name="frontend", detail="the name of a frontend")
    return Question(iq, Disconnect(iq.sender, name))


def _switch(state: NodeState, title: str, instructions: str) -> commands.Command:
    node = _SWITCHES[state]
    return commands.Command(node, title, node, write_form(node, title, instructions, _NODE), _setting(state))


_LIST_TITLE, _RELEASE_TITLE = "List nodes with their counts", "End locks by force"
_DISCONNECT_TITLE: Final = "Disconnect a frontend"

COMMANDS: Final = (
    commands.Command(
        ns.ADMIN_OVERVIEW,
        _LIST_TITLE,
        ns.ADMIN_OVERVIEW,
        write_form(ns.ADMIN_OVERVIEW, _LIST_TITLE, "Choose a page of the list.", _PAGE),
        _overview,
        role=Role.VIEWER,
    ),
    _switch(
        NodeState.PAUSED,
        "Pause a node",
        "Deliveries stop: publishes are still accepted, and held items may be acknowledged or returned.",
    ),
    _switch(NodeState.RUNNING, "Resume a node", "Deliveries continue at once after a pause or a drain."),
    _switch(
        NodeState.DRAINING,
        "Drain a node",
        "Publishes are refused until the node is resumed, and the remaining items are delivered.",
    ),
    commands.Command(
        ns.ADMIN_RELEASE,
        _RELEASE_TITLE,
        ns.ADMIN_RELEASE,
        write_form(
            ns.ADMIN_RELEASE,
            _RELEASE_TITLE,
            "The holder is notified, and the item goes to the next worker at once.",
            _LOCKS,
        ),
        _release,
    ),
    commands.Command(
        ns.ADMIN_DISCONNECT,
        _DISCONNECT_TITLE,
        ns.ADMIN_DISCONNECT,
        lambda iq: Question(iq, Frontends(iq.sender)),
        _disconnect,
        role=Role.ADMIN,
        audited=True,
    ),
)
