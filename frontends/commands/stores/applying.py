"""`stanzaq apply`: makes nodes and quotas be what a file declares. Must not know how a file is written.

All is compared before anything is changed, and the difference is shown first. Applied again, a file changes nothing.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from broker.model.commands import Delete, ListQuotas, Overview, SetQuota
from broker.model.core import Core
from broker.model.names import Jid
from broker.model.nodes.nodes import change_config
from broker.model.nodes.options import NodeConfig
from broker.model.nodes.quotas import Quota
from broker.model.nodes.tree import COLLECTION, tree_request
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Overviewed, QuotaList, Refused
from broker.redis_core.records.validation import check_conversion, check_options
from broker.settings import load_command
from frontends.commands.item import Yes
from frontends.commands.runner import ADMINISTRATOR, Unwilling, ask, complain, confirm, misuse, run, say, table, tell
from frontends.commands.stores.declarations import Change, Declaration, Kind, Present, carry_out, changes, find
from frontends.terminal import Config, Json, settings

if TYPE_CHECKING:
    from frontends.commands.stores.declared_file import Declared

_STDIN: Final = "-"
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class _Step:
    """A change, and what it is about: a node, or a quota."""

    about: str
    change: Change

    def record(self) -> dict[str, str]:
        """Return it as a JSON object."""
        return {"about": self.about, "kind": self.change.kind.name.lower(), "change": self.change.text}


def apply(
    file: Annotated[str, typer.Option("--file", "-f", help="The YAML file; - is standard input.")],
    config: Config = None,
    *,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Delete what is not in the file: rights, schedules, quotas, nodes of its owners."),
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Make queues, rights, schedules and quotas what a YAML file declares, after showing what changes. Again, it changes nothing.

    Example: stanzaq apply -f queues.yaml
    """
    # Not for `--help`: what reads YAML and calendars takes a while.
    from frontends.commands.stores.declared_file import Unreadable, read  # noqa: PLC0415

    given = settings(config, load_command)
    name = "standard input" if file == _STDIN else file
    try:
        text = sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
        declared = read(name, text, given.admins[0] if given.admins else None, given.node_defaults)
    except OSError as fault:
        misuse(f"{name} cannot be read: {fault.strerror}")
    except Unreadable as fault:
        complain(str(fault))
    steps, left = run(config, lambda core: _compare(core, declared, given.admins, prune=prune))
    if as_json:
        tell({"changes": [each.record() for each in steps], "not_pruned": left})
    elif steps:
        table(("about", "change"), [[each.about, each.change.text] for each in steps])
    if left:
        say(f"{left} more would be deleted with --prune")
    if not steps:
        say("nothing to do")
        return
    confirm(f"Make these {len(steps)} changes?", yes=yes)
    run(config, lambda core: _carry_out(core, steps))
    say(f"made {len(steps)} changes")


async def _compare(
    core: Core, declared: "Declared", admins: tuple[Jid, ...], *, prune: bool
) -> tuple[list[_Step], int]:
    """Return the changes, with deletions last, and how much would be deleted besides. Raises Unwilling for what cannot be."""
    steps: list[_Step] = []
    kept = {each.node for each in declared.nodes}
    for wanted in declared.nodes:
        there = await find(core, wanted.node, admins)
        above = "".join(wanted.options.get(COLLECTION, ()))
        if above and above not in kept and await find(core, above, admins) is None:
            _refuse(wanted.node, Problem.NODE_NOT_FOUND, f"the collection {above} is neither there nor in the file")
        steps += [_Step(wanted.node, each) for each in changes(wanted, there)]
        # What only serves a node of the file stays with it.
        kept |= {above, _new_config(wanted, there, declared.defaults).dead_letters_of(wanted.node) or ""}
    steps += await _quotas(core, declared.quotas)
    steps += await _surplus(core, {each.owner for each in declared.nodes}, kept)
    made = [each for each in steps if each.change.kind is not Kind.REMOVE]
    removed = [each for each in steps if each.change.kind is Kind.REMOVE]
    return (made + removed, 0) if prune else (made, len(removed))


def _new_config(wanted: Declaration, there: Present | None, defaults: NodeConfig) -> NodeConfig:
    """Return what a node is to be like; raises Unwilling for a change that no node can make."""
    if there is None:
        return wanted.check(defaults)
    before = there.record.config
    try:
        after = change_config(before, tree_request(wanted.options)[0])
    except MalformedRequest as wrong:
        _refuse(wanted.node, wrong.problem, wrong.detail)
    if before.partitions != after.partitions:
        text = f"it has {before.partitions} partitions for good: make a node of {after.partitions}, and move its items there"
        _refuse(wanted.node, Problem.NOT_ACCEPTABLE, text)
    if refused := check_conversion(before, after) or check_options(after):
        _refuse(wanted.node, refused.problem, refused.detail)
    return after


def _refuse(node: str, problem: Problem, detail: str) -> NoReturn:
    raise Unwilling(Refused(problem, f"{node}: {detail}"))


async def _quotas(core: Core, wanted: Mapping[str, Quota] | None) -> list[_Step]:
    """Compare quotas, if the file has any."""
    if wanted is None:
        return []
    there = {each.subject: each.quota for each in (await ask(core, ListQuotas(ADMINISTRATOR), QuotaList)).quotas}
    steps = []
    for subject in sorted({*wanted, *there}):
        now, then = there.get(subject), wanted.get(subject)
        if now == then:
            continue
        kind = Kind.ADD if now is None else Kind.REMOVE if then is None else Kind.ALTER
        text = "is cleared" if then is None else f"becomes {_write_quota(then)}"
        text += f", was {_write_quota(now)}" if now else ""
        change = Change(kind, text, SetQuota(ADMINISTRATOR, subject, then))
        steps.append(_Step(f"quota of {subject}", change))
    return steps


def _write_quota(quota: Quota) -> str:
    return " ".join(f"{name}={value}" for name, value in quota.limits_by_name().items())


async def _surplus(core: Core, owners: set[Jid], kept: set[str]) -> list[_Step]:
    """Return the deletions of other nodes of these owners."""
    steps: list[_Step] = []
    first = 0
    while True:
        page = await ask(core, Overview(ADMINISTRATOR, first, _PAGE), Overviewed)
        for each in page.nodes:
            record, counted = each.record, each.counted
            if record.creator in owners and record.name not in kept:
                items = counted.waiting + counted.in_flight + counted.dying + counted.kept
                delete = Delete(record.name, ADMINISTRATOR)
                steps.append(_Step(record.name, Change(Kind.REMOVE, f"is deleted, with {items} items", delete)))
        first += _PAGE
        if first >= page.total:
            return steps


async def _carry_out(core: Core, steps: Sequence[_Step]) -> None:
    for each in steps:
        await carry_out(core, each.about, each.change)
