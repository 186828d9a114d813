"""What nodes are to be like, and what would have to change for that. Must not know any file.

A declaration is a node's options, rights and schedules. Compared with the node that is there, or is not, it gives changes: each
with what it does, in words, and the command that does it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from broker.model.commands import (
    Affiliate,
    Command,
    Configure,
    Declare,
    Describe,
    ListSchedules,
    PutSchedule,
    RemoveSchedule,
)
from broker.model.core import Core
from broker.model.items.durability import Durability
from broker.model.names import Jid, read_affiliate
from broker.model.nodes.nodes import Affiliation, NodeRecord, find_unmet, form_values
from broker.model.nodes.options import NodeConfig
from broker.model.nodes.schedules import ScheduleState, ScheduleStatus
from broker.model.nodes.tree import COLLECTION
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Described, Refused, ScheduleList, refusal_of
from broker.model.roles import Roles
from broker.redis_core.records.validation import NodeRules, Rules
from frontends.commands import fields
from frontends.commands.runner import ADMINISTRATOR, Unwilling, ask, list_schedules

_RIGHTS: Final = tuple(each.value for each in Affiliation if each is not Affiliation.NONE)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A node: its options by wire name, the affiliations of bare JIDs, and its schedules by id, which say if they are paused.

    A new node belongs to `owner`. Without affiliations or schedules it is declared as it is.
    """

    node: str
    owner: Jid
    options: Mapping[str, tuple[str, ...]]
    affiliations: Mapping[Jid, str] | None = None
    schedules: Mapping[str, PutSchedule] | None = None

    def check(self, defaults: NodeConfig) -> NodeConfig:
        """Return the configuration of a new node; raises MalformedRequest for what none can have."""
        rules = NodeRules(Rules(Roles(frozenset(), {}, {}), lambda _jid: True, defaults, 0, 0), _nothing, _unlimited)
        made = rules.new_config(Declare(self.node, self.owner, self.options), self.node)
        if isinstance(made, Refused):
            raise MalformedRequest(made.problem, made.detail)
        return made[0]


async def _nothing(_node: str) -> None:
    return None


async def _unlimited(_level: Durability) -> str:
    """Say that Redis can do all: the service checks it when it makes the node."""
    return ""


def read_rights(rights: Mapping[str, str]) -> dict[Jid, str]:
    """Read affiliations by bare JID, domain or group; raises MalformedRequest."""
    found = {}
    for text, affiliation in rights.items():
        if affiliation not in _RIGHTS:
            raise MalformedRequest(Problem.BAD_REQUEST, f"{text}: {affiliation} is none of {', '.join(_RIGHTS)}")
        try:
            found[read_affiliate(text)] = affiliation
        except ValueError as wrong:
            raise MalformedRequest(Problem.BAD_REQUEST, str(wrong)) from None
    return found


@dataclass(frozen=True, slots=True)
class Present:
    """A node that is there; `administrators` are shown as its owners, and may be others'."""

    record: NodeRecord
    affiliations: Mapping[Jid, str]
    administrators: frozenset[Jid]
    schedules: Mapping[str, ScheduleStatus]


class Kind(Enum):
    """What a change does to what is there."""

    ADD = auto()
    ALTER = auto()
    REMOVE = auto()


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a node: what it does, and the command for it."""

    kind: Kind
    text: str
    command: Command

    @property
    def publishes(self) -> bool:
        """Whether the node begins to publish by itself."""
        return isinstance(self.command, PutSchedule)


async def find(core: Core, node: str, admins: tuple[Jid, ...]) -> Present | None:
    """Read a node with its schedules; None if there is none. Raises Unwilling."""
    try:
        record = (await ask(core, Describe(node, ADMINISTRATOR, as_owner=True), Described)).record
    except Unwilling as fault:
        if fault.refused.problem is Problem.NODE_NOT_FOUND:
            return None
        raise
    # Whoever administers the service is shown as an owner of each node.
    ours = frozenset({ADMINISTRATOR, *admins}) - {record.creator}
    rights = {jid: each.value for jid, each in sorted(record.affiliations.items()) if jid not in ours}
    return Present(record, rights, ours, await _schedules(core, record))


async def _schedules(core: Core, record: NodeRecord) -> dict[str, ScheduleStatus]:
    if record.config.collects:
        return {}
    names = [each.schedule.id async for each in list_schedules(core, record.name)]
    # Only one that is named comes with its item.
    found = [await ask(core, ListSchedules(record.name, ADMINISTRATOR, 1, id=name), ScheduleList) for name in names]
    return {each.schedule.id: each for one in found for each in one.schedules}


def changes(wanted: Declaration, there: Present | None) -> Iterator[Change]:
    """Compare a node with its declaration. Raises MalformedRequest for an option that is none, or has no such value."""
    if there is None:
        yield Change(Kind.ADD, "is created", Declare(wanted.node, wanted.owner, wanted.options))
    else:
        yield from _options(wanted, there.record)
    if wanted.affiliations is not None:
        rights = {wanted.owner: Affiliation.OWNER.value} if there is None else there.affiliations
        hidden = frozenset[Jid]() if there is None else there.administrators
        yield from _affiliations(wanted.node, wanted.affiliations, rights, hidden)
    if wanted.schedules is not None:
        yield from _schedule_changes(wanted.node, wanted.schedules, {} if there is None else there.schedules)


def _options(wanted: Declaration, record: NodeRecord) -> Iterator[Change]:
    """Return one change of all options that differ: some are allowed only together."""
    shown = form_values(record.name, record.config) | {COLLECTION: record.parent}
    differing = {name: values for name, values in wanted.options.items() if _differs(name, values, record)}
    texts = [
        f"{fields.short_name(name)} changes from {_one_line(shown.get(name, ''))} to {_one_line(' '.join(values))}"
        for name, values in differing.items()
    ]
    if differing:
        yield Change(Kind.ALTER, ", ".join(texts), Configure(wanted.node, ADMINISTRATOR, differing))


def _differs(name: str, values: tuple[str, ...], record: NodeRecord) -> bool:
    if name == COLLECTION:
        return record.parent != "".join(values)
    return find_unmet(record, {name: values}) is not None


def _one_line(text: str) -> str:
    return " ".join(text.split()) or "empty"


def _affiliations(
    node: str, wanted: Mapping[Jid, str], there: Mapping[Jid, str], hidden: frozenset[Jid]
) -> Iterator[Change]:
    differing = [jid for jid in {*wanted, *there} - hidden if there.get(jid) != wanted.get(jid)]
    # New ones come first: a node keeps at least one owner.
    for jid in sorted(differing, key=lambda jid: (jid in there, jid)):
        now, then = there.get(jid), wanted.get(jid)
        kind = Kind.ADD if now is None else Kind.REMOVE if then is None else Kind.ALTER
        text = {
            Kind.ADD: f"{jid} becomes {then}",
            Kind.ALTER: f"{jid} changes from {now} to {then}",
            Kind.REMOVE: f"{jid} is no longer {now}",
        }[kind]
        yield Change(kind, text, Affiliate(node, ADMINISTRATOR, {jid: then or Affiliation.NONE.value}))


def _schedule_changes(
    node: str, wanted: Mapping[str, PutSchedule], there: Mapping[str, ScheduleStatus]
) -> Iterator[Change]:
    for name in sorted({*wanted, *there}):
        put, now = wanted.get(name), there.get(name)
        if put is None:
            yield Change(Kind.REMOVE, f"the schedule {name} is deleted", RemoveSchedule(node, ADMINISTRATOR, name))
        elif now is None:
            yield Change(Kind.ADD, f"the schedule {name} is made", put)
        elif not _is_same(put, now):
            yield Change(Kind.ALTER, f"the schedule {name} changes", put)


def _is_same(put: PutSchedule, now: ScheduleStatus) -> bool:
    item = now.item
    assert item is not None
    there = (now.schedule, item.envelope, item.key, item.hints, now.state is ScheduleState.PAUSED)
    return (put.schedule, put.envelope, put.key, put.hints, put.paused) == there


async def carry_out(core: Core, node: str, change: Change) -> None:
    """Make a change; raises Unwilling, which names the node."""
    if refused := refusal_of(await core.ask(change.command)):
        raise Unwilling(replace(refused, detail=f"{node}: {refused.detail or refused.problem.value}"))
