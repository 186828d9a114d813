"""`stanzaq node`: turns the command line into commands of the model. Must not know how they are executed."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from broker.model.commands import (
    Affiliate,
    Approve,
    Configure,
    Declare,
    Delete,
    Describe,
    ListQuotas,
    ListRequests,
    MoveItems,
    Overview,
    Purge,
    Stats,
)
from broker.model.core import Core
from broker.model.names import Jid, bare_jid, read_affiliate
from broker.model.nodes.nodes import Affiliation
from broker.model.nodes.options import NodeState
from broker.model.problems import Problem
from broker.model.results import (
    Counted,
    Declared,
    Described,
    Done,
    Overviewed,
    Purged,
    QuotaList,
    Refused,
    SubscriptionList,
)
from broker.settings import load_command
from frontends.commands import fields, views
from frontends.commands.moving import move
from frontends.commands.runner import (
    ADMINISTRATOR,
    Unwilling,
    ask,
    confirm,
    jid,
    misuse,
    nodes_beginning,
    run,
    say,
    show_progress,
    table,
    tell,
)
from frontends.terminal import Config, Json, settings

app = typer.Typer(help="List, create, change and delete nodes.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The node's name.", autocompletion=nodes_beginning)]
Options = Annotated[
    list[str] | None, typer.Argument(help="Options as key=value, e.g. lock_seconds=30 or pubsub#max_items=1000.")
]
Members = Annotated[
    list[str] | None, typer.Option(help="Bare JID that may subscribe, and so work on items; repeatable.")
]
Publishers = Annotated[list[str] | None, typer.Option(help="Bare JID that may publish and subscribe; repeatable.")]
Accounts = Annotated[list[str], typer.Argument(help="Bare JIDs.")]
Asking = Annotated[list[str] | None, typer.Argument(help="Bare JIDs that ask.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]

_LOOK_SECONDS = 0.5


@app.command("list")
def node_list(
    first: Annotated[int, typer.Option(min=0, help="Start at this number, in order of creation; the first is 0.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The most nodes to list.")] = 100,
    config: Config = None,
    *,
    as_json: Json = False,
) -> None:
    """List nodes and the number of their items.

    Example: stanzaq node list --limit 20
    """

    async def look(core: Core) -> tuple[Overviewed, dict[Jid, float]]:
        found = await ask(core, Overview(ADMINISTRATOR, first, limit), Overviewed)
        return found, await _quota_shares(core, {one.record.creator for one in found.nodes if one.record.creator})

    found, shares = run(config, look)
    if as_json:
        tell(
            {
                "nodes": [views.summary(one.record, one.counted, shares) for one in found.nodes],
                "first": first,
                "total": found.total,
            }
        )
        return
    head = ("node", "state", "partitions", *views.COUNTS, "owner", "quota")
    table(head, [views.summary_row(one, shares) for one in found.nodes])
    more = found.total - first - limit
    if more > 0:
        say(f"{more} more: --first {first + limit}")


async def _quota_shares(core: Core, owners: set[Jid]) -> dict[Jid, float]:
    """Return how much owners use of their quotas: the largest share of any limit."""
    lists = await asyncio.gather(*(ask(core, ListQuotas(ADMINISTRATOR, owner), QuotaList) for owner in owners))
    shares = {}
    for owner, held in zip(owners, lists, strict=True):
        found = [each.share for each in held.quotas if each.share is not None]
        if found:
            shares[owner] = max(found)
    return shares


@app.command("show")
def node_show(name: Name, config: Config = None, *, as_json: Json = False) -> None:
    """Show a node: its options, affiliations and counts.

    Example: stanzaq node show jobs
    """

    async def look(core: Core) -> dict[str, Any]:
        described = await ask(core, Describe(name, ADMINISTRATOR, as_owner=True), Described)
        told = views.node(described.record, await ask(core, Stats(name, ADMINISTRATOR), Counted))
        # The sender owns the node only during this command.
        told["affiliations"].pop(ADMINISTRATOR, None)
        return told

    told = run(config, look)
    tell(told) if as_json else table(("", ""), views.node_rows(told), head=False)


@app.command("create")
def node_create(  # noqa: PLR0913, PLR0917  (an argument is an option of the command line)
    name: Name,
    options: Options = None,
    owner: Annotated[str, typer.Option(help="Bare JID of its owner. Default: the first of ADMINS.")] = "",
    member: Members = None,
    publisher: Publishers = None,
    config: Config = None,
    *,
    as_json: Json = False,
) -> None:
    """Create a node, for these workers (members) and publishers.

    Example: stanzaq node create jobs lock_seconds=30 --owner romeo@example.org --member juliet@example.org
    """
    command, changes = Declare(name, _owner(owner, config), _fields(options)), _admitted(member, publisher)

    async def make(core: Core) -> str:
        made = await ask(core, command, Declared)
        if changes:
            await ask(core, Affiliate(made.node, ADMINISTRATOR, changes), Done)
        return made.node

    node = run(config, make)
    _show_done({"node": node}, f"created {node}", as_json=as_json)


def _owner(owner: str, config: Path | None) -> Jid:
    admins = settings(config, load_command).admins
    if not (owner or admins):
        misuse("who owns the node? Use --owner JID, or set STANZAQ_ADMINS")
    return bare_jid(jid(owner, "--owner")) if owner else admins[0]


def _admitted(members: list[str] | None, publishers: list[str] | None) -> dict[Jid, str]:
    """Return the affiliations that options of the command line name."""
    changes = {jid(text, "--member", read_affiliate): Affiliation.MEMBER.value for text in members or ()}
    # A publisher may subscribe too, so it needs nothing else.
    publishing = Affiliation.PUBLISHER.value
    return changes | {jid(text, "--publisher", read_affiliate): publishing for text in publishers or ()}


@app.command("grant")
def node_grant(
    name: Name, member: Members = None, publisher: Publishers = None, config: Config = None, *, as_json: Json = False
) -> None:
    """Admit workers (members) and publishers to a node: accounts, or all of a domain, example.org, or a group, group:NAME.

    Example: stanzaq node grant jobs --member juliet@example.org --publisher romeo@example.org
    """
    changes = _admitted(member, publisher)
    if not changes:
        misuse("whom? Use --member JID for who works on items, --publisher JID for who publishes them, or both")
    run(config, lambda core: ask(core, Affiliate(name, ADMINISTRATOR, changes), Done))
    _show_done({"node": name, "affiliations": changes}, f"admitted {', '.join(changes)} to {name}", as_json=as_json)


@app.command("revoke")
def node_revoke(name: Name, who: Accounts, config: Config = None, *, as_json: Json = False) -> None:
    """Take affiliations away. Whom the node no longer admits loses subscriptions and locks at once.

    Example: stanzaq node revoke jobs juliet@example.org
    """
    changes = {jid(text, "JID", read_affiliate): Affiliation.NONE.value for text in who}
    run(config, lambda core: ask(core, Affiliate(name, ADMINISTRATOR, changes), Done))
    _show_done({"node": name, "affiliations": changes}, f"removed {', '.join(changes)} from {name}", as_json=as_json)


@app.command("approve")
def node_approve(
    name: Name,
    who: Asking = None,
    config: Config = None,
    *,
    refuse: Annotated[bool, typer.Option("--refuse", help="Refuse them.")] = False,
    as_json: Json = False,
) -> None:
    """Approve requests to subscribe to a node whose access model is authorize; without a JID, list them.

    Example: stanzaq node approve jobs juliet@example.org
    """
    jids = [jid(text, "JID") for text in who or ()]

    async def decide(core: Core) -> list[Jid]:
        asking = [
            bare_jid(one.jid)
            for one in (await ask(core, ListRequests(name, ADMINISTRATOR), SubscriptionList)).subscriptions
        ]
        for each in jids:
            if bare_jid(each) not in asking:
                raise Unwilling(Refused(Problem.ITEM_NOT_FOUND, f"{each} does not ask to subscribe to {name}"))
            await ask(core, Approve(name, ADMINISTRATOR, each, "", not refuse), Done)
        return asking

    asking = run(config, decide)
    if not jids:
        tell({"node": name, "requests": asking}) if as_json else table(
            ("asks to subscribe",), [[each] for each in asking]
        )
        return
    state = "refused" if refuse else "approved"
    _show_done({"node": name, state: jids}, f"{state} {', '.join(jids)}", as_json=as_json)


@app.command("configure")
def node_configure(name: Name, options: Options = None, config: Config = None, *, as_json: Json = False) -> None:
    """Change options of a node, by wire name or without the prefix.

    Example: stanzaq node configure jobs lock_seconds=120 pubsub#max_items=5000
    """
    wanted = _fields(options)
    if not wanted:
        misuse("which options? Write them as key=value, e.g. lock_seconds=120")
    run(config, lambda core: ask(core, Configure(name, ADMINISTRATOR, wanted), Done))
    _show_done({"node": name}, f"configured {name}", as_json=as_json)


async def _wait_until_empty(core: Core, name: str) -> None:
    """Wait until the node is empty, and show how many items are left."""
    with show_progress() as show:
        while True:
            counted = await ask(core, Stats(name, ADMINISTRATOR), Counted)
            left = counted.waiting + counted.in_flight + counted.dying
            if not left:
                return
            show(f"{left} left, {counted.in_flight} of them held")
            await asyncio.sleep(_LOOK_SECONDS)


def _show_done(record: dict[str, Any], sentence: str, *, as_json: bool) -> None:
    tell(record) if as_json else say(sentence)


def _fields(words: list[str] | None) -> dict[str, tuple[str, ...]]:
    try:
        return fields.read(words or [])
    except fields.Unreadable as fault:
        misuse(str(fault))


@app.command("pause")
def node_pause(name: Name, config: Config = None, *, as_json: Json = False) -> None:
    """Stop deliveries: publishes are still accepted, and held items may be acknowledged or returned.

    Example: stanzaq node pause jobs
    """
    _set(name, NodeState.PAUSED, config, as_json=as_json)


@app.command("resume")
def node_resume(name: Name, config: Config = None, *, as_json: Json = False) -> None:
    """Continue at once after a pause or a drain.

    Example: stanzaq node resume jobs
    """
    _set(name, NodeState.RUNNING, config, as_json=as_json)


@app.command("drain")
def node_drain(
    name: Name,
    config: Config = None,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is empty.")] = False,
    as_json: Json = False,
) -> None:
    """Accept no more publishes and deliver what is left, until the node is resumed.

    Example: stanzaq node drain jobs --wait
    """
    _set(name, NodeState.DRAINING, config, as_json=as_json and not wait)
    if wait:
        run(config, lambda core: _wait_until_empty(core, name))
        _show_done({"node": name, "state": NodeState.DRAINING.value, "left": 0}, f"{name} is empty", as_json=as_json)


def _set(name: str, state: NodeState, config: Path | None, *, as_json: bool) -> None:
    change = {"stanzaq#state": (state.value,)}
    run(config, lambda core: ask(core, Configure(name, ADMINISTRATOR, change), Done))
    _show_done({"node": name, "state": state.value}, f"{name} is {state.value}", as_json=as_json)


@app.command("purge")
def node_purge(name: Name, config: Config = None, *, yes: Yes = False, as_json: Json = False) -> None:
    """Drop all waiting items; held ones stay with their holders.

    Example: stanzaq node purge jobs --yes
    """
    confirm(f"Drop all items waiting in {name}?", yes=yes)
    purged = run(config, lambda core: ask(core, Purge(name, ADMINISTRATOR), Purged))
    _show_done({"node": name, "purged": purged.count}, f"dropped {purged.count}", as_json=as_json)


@app.command("delete")
def node_delete(name: Name, config: Config = None, *, yes: Yes = False, as_json: Json = False) -> None:
    """Delete a node with everything in it.

    Example: stanzaq node delete jobs --yes
    """
    confirm(f"Delete {name} and everything in it?", yes=yes)
    run(config, lambda core: ask(core, Delete(name, ADMINISTRATOR), Done))
    _show_done({"node": name}, f"deleted {name}", as_json=as_json)


@app.command("move")
def node_move(  # noqa: PLR0913  (an argument is an option of the command line)
    name: Name,
    to: Annotated[str, typer.Argument(help="The target node.", autocompletion=nodes_beginning)],
    items: Annotated[list[str] | None, typer.Option("--item", help="Only this item; repeatable.")] = None,
    rate: Annotated[float, typer.Option(min=0.1, help="The most items a second.")] = 1000.0,
    config: Config = None,
    *,
    as_json: Json = False,
) -> None:
    """Move the waiting items of a node to another one; held ones stay.

    Example: stanzaq node move jobs jobs-slow --rate 100
    """
    move(MoveItems(name, ADMINISTRATOR, to, tuple(items or ()), "", 1), rate, config, as_json=as_json)
