"""`stanzaq erase`: removes what belongs to an account, as the law may demand. Must not know how anything is kept.

It goes through all nodes, a part at a time, and keeps no place: to run it again continues, since what is gone costs nothing.
"""

import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from broker.model import audit
from broker.model.commands import (
    Affiliate,
    Command,
    Describe,
    Erase,
    ListQuotas,
    Nodes,
    NoteErasure,
    RemoveSchedule,
    SetQuota,
    Subscriptions,
    Unsubscribe,
)
from broker.model.names import Jid, read_bare_jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.problems import Problem
from broker.model.results import (
    Described,
    Done,
    Erased,
    Listing,
    QuotaList,
    SubscriptionList,
    refusal_of,
)
from frontends.commands.runner import (
    ADMINISTRATOR,
    Unwilling,
    ask,
    confirm,
    list_schedules,
    misuse,
    run,
    say,
    show_progress,
    table,
    tell,
)
from frontends.terminal import Config, Json

if TYPE_CHECKING:
    from broker.redis_core.core import RedisCore

_PAGE: Final = 500
_KINDS: Final = ("schedules", "subscriptions", "affiliations", "items", "ends", "records", "quotas")
_LEFT: Final = ("held", "leaving", "owned")
_SHOWN: Final = 20


def erase(  # noqa: PLR0913  (an argument is an option of the command line)
    jid: Annotated[str, typer.Argument(help="The account, a bare JID.")],
    config: Config = None,
    *,
    held: Annotated[bool, typer.Option("--held", help="Erase items that workers hold, too: these are told.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Erase what belongs to an account: items, ends of items, journal records, schedules, subscriptions, affiliations, quota.

    Example: stanzaq erase romeo@example.org --dry-run
    """
    try:
        account = read_bare_jid(jid)
    except ValueError as fault:
        misuse(str(fault))
    if not dry_run:
        confirm(f"Erase what belongs to {account}?", yes=yes)
    work = _Erasure(account, looks=dry_run)
    with show_progress() as show:
        run(config, lambda core: work.carry_out(core, show, held=held))
    left = work.counts["held"]
    if (
        left
        and not (held or dry_run or yes)
        and sys.stdin.isatty()
        and typer.confirm(f"{left} are held: erase them too?", err=True)
    ):
        work = _Erasure(account, looks=False)
        with show_progress() as show:
            run(config, lambda core: work.carry_out(core, show, held=True))
    _show(work, as_json=as_json)


class _Erasure:
    """One pass over all nodes."""

    def __init__(self, jid: Jid, *, looks: bool) -> None:
        """Erase what belongs to an account; one that `looks` only counts."""
        self.jid = jid
        self.counts = Counter[str]()
        self.owned: list[str] = []
        """Nodes that have no other owner."""
        self.looks = looks

    async def carry_out(self, core: "RedisCore", show: Callable[[str], None], *, held: bool) -> None:
        """Erase all, and note that in the audit before it begins and when it is done."""
        if not self.looks:
            await ask(core, NoteErasure(ADMINISTRATOR, self.jid), Done)
        await self._end_subscriptions(core)
        async for record in _nodes(core):
            show(f"{record.name}: {', '.join(f'{count} {kind}' for kind, count in self.counts.items())}")
            await self._erase_rights(core, record)
            if not record.config.collects and record.name != audit.NODE:
                await self._remove_schedules(core, record.name)
                for partition in record.partitions:
                    await self._erase_partition(core, record.name, partition.number, held=held)
        quotas = (await ask(core, ListQuotas(ADMINISTRATOR), QuotaList)).quotas
        if any(each.subject == self.jid for each in quotas):
            await self._change(core, SetQuota(ADMINISTRATOR, self.jid, None), "quotas")
        if not self.looks:
            await ask(core, NoteErasure(ADMINISTRATOR, self.jid, dict(self.counts)), Done)

    async def _end_subscriptions(self, core: "RedisCore") -> None:
        found = await ask(core, Subscriptions(self.jid, None), SubscriptionList)
        for each in found.subscriptions:
            await self._change(
                core, Unsubscribe(each.node, self.jid, each.jid, each.subid, release=True), "subscriptions"
            )

    async def _erase_rights(self, core: "RedisCore", record: NodeRecord) -> None:
        if self.jid in record.affiliations and not await self._change(
            core, Affiliate(record.name, ADMINISTRATOR, {self.jid: "none"}), "affiliations"
        ):
            self.counts["owned"] += 1
            self.owned.append(record.name)

    async def _remove_schedules(self, core: "RedisCore", node: str) -> None:
        try:
            async for each in list_schedules(core, node):
                if each.maker == self.jid:
                    await self._change(core, RemoveSchedule(node, ADMINISTRATOR, each.schedule.id), "schedules")
        except Unwilling as fault:
            _unless_gone(fault)

    async def _erase_partition(self, core: "RedisCore", node: str, number: int, *, held: bool) -> None:
        part = Erase(node, ADMINISTRATOR, number, self.jid, held, self.looks)
        while True:
            try:
                done = await ask(core, part, Erased)
            except Unwilling as fault:
                _unless_gone(fault)
                return
            self.counts.update(
                items=done.items, held=done.held, leaving=done.leaving, ends=done.ends, records=done.records
            )
            if not done.come:
                return
            part = Erase(node, ADMINISTRATOR, number, self.jid, held, self.looks, done.come)

    async def _change(self, core: "RedisCore", command: Command, kind: str) -> bool:
        """Make a change and count it; returns whether it was made."""
        refused = None if self.looks else refusal_of(await core.ask(command))
        if refused and refused.problem.is_ours:
            raise Unwilling(refused)
        self.counts[kind] += not refused
        return not refused


async def _nodes(core: "RedisCore") -> AsyncIterator[NodeRecord]:
    """Yield the records of all nodes, in order of creation."""
    listed = await ask(core, Nodes(ADMINISTRATOR, _PAGE), Listing)
    while listed.nodes:
        for name in listed.nodes:
            found = await core.ask(Describe(name, ADMINISTRATOR, as_owner=True))
            if isinstance(found, Described):
                yield found.record
        listed = await ask(core, Nodes(ADMINISTRATOR, _PAGE, listed.nodes[-1]), Listing)


def _unless_gone(fault: Unwilling) -> None:
    """Raise a refusal, unless the node was deleted meanwhile."""
    if fault.refused.problem is not Problem.NODE_NOT_FOUND:
        raise fault


def _show(work: _Erasure, *, as_json: bool) -> None:
    counts = {kind: work.counts[kind] for kind in (*_KINDS, *_LEFT)}
    if as_json:
        tell({"account": work.jid, "dry_run": work.looks, **counts, "owned_nodes": work.owned})
        return
    table(("what", "there are" if work.looks else "erased"), [(kind, str(counts[kind])) for kind in _KINDS])
    if counts["held"]:
        say(f"{counts['held']} items are held by workers: run it again later, or with --held")
    if counts["leaving"]:
        say(f"{counts['leaving']} items are on their way to another node: run it again in a minute")
    if work.owned:
        say(
            f"{work.jid} is the only owner of {', '.join(work.owned[:_SHOWN])}: make another one its owner, or delete it"
        )
