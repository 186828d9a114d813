"""`stanzaq item`: turns the command line into commands of the model. Must not know how they are executed."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from broker import codec, payloads
from broker.model.commands import Cancel, InspectItems, MoveItems, Publish, Release, Retract
from broker.model.core import Core
from broker.model.items.dependencies import Dependencies
from broker.model.items.headers import size as header_bytes
from broker.model.items.headers import validate_headers
from broker.model.items.hints import Hints
from broker.model.items.items import ItemDetails
from broker.model.problems import MalformedRequest
from broker.model.results import Cancelled, InspectedItems, Published, Released, Retracted
from frontends.commands import sources, views
from frontends.commands.moving import move
from frontends.commands.runner import (
    ADMINISTRATOR,
    ask,
    complain,
    confirm,
    jid,
    lines,
    misuse,
    nodes_beginning,
    run,
    say,
    table,
    tell,
)
from frontends.terminal import Config, Json
from stanzaq.durations import seconds

_PAGE: Final = 1_000
"""How many items are inspected at once, however few are listed: each page is one call."""

app = typer.Typer(help="List, cancel and delete items, redrive dead letters, end locks.", no_args_is_help=True)

Node = Annotated[str, typer.Argument(help="The node's name.", autocompletion=nodes_beginning)]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
Items = Annotated[list[str] | None, typer.Argument(help="Ids of items.")]

State = Literal["waiting", "delayed", "dependent", "locked", "dying", "kept"]

_COLUMNS = ("item", "partition", "state", "attempts", "published", "holder", "reason")


@app.command("list")
def item_list(  # noqa: PLR0913  (an argument is an option of the command line)
    node: Node,
    state: Annotated[State | None, typer.Option(help="Only items in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The most items to list.")] = 50,
    scan: Annotated[str, typer.Option(help="Continue an earlier list.")] = "",
    config: Config = None,
    *,
    as_json: Json = False,
) -> None:
    """List items in the order of each partition.

    Example: stanzaq item list jobs/dead --limit 20
    """
    found, place = run(config, lambda core: scan_items(core, node, limit, scan, lambda one: state in {None, one.state}))
    if as_json:
        tell({"node": node, "items": [views.item(one) for one in found], "scan": place})
        return
    table(_COLUMNS, [views.item_row(one) for one in found])
    if place:
        say(f"there may be more: --scan '{place}'")


async def scan_items(
    core: Core, node: str, limit: int, scan: str, wanted: Callable[[ItemDetails], bool]
) -> tuple[list[ItemDetails], str]:
    """Inspect items until `limit` of them are `wanted`, or all are seen; return where to continue as well."""
    found: list[ItemDetails] = []
    going, place = True, scan
    while going:
        part = await ask(core, InspectItems(node, ADMINISTRATOR, (), _PAGE, place), InspectedItems)
        found += filter(wanted, part.items)
        place = part.scan
        going = bool(place) and len(found) < limit
    if len(found) > limit:
        last = found[limit - 1]
        return found[:limit], f"{last.partition} {last.position}"
    return found, place


@app.command("publish")
def item_publish(  # noqa: PLR0913, PLR0917  (an argument is an option of the command line)
    node: Node,
    text: Annotated[str | None, typer.Option("--payload", help="The payload, as JSON.")] = None,
    file: Annotated[str | None, typer.Option(help="A file with the payload; - is standard input.")] = None,
    kind: Annotated[str, typer.Option("--type", help="The payload's type. Default: by the file's name.")] = "",
    item: Annotated[str, typer.Option("--id", help="The item's id. Default: a new one.")] = "",
    key: Annotated[str, typer.Option(help="The group key.")] = "",
    header: Annotated[list[str] | None, typer.Option(help="A header, as NAME=VALUE; repeatable.")] = None,
    delay: Annotated[str, typer.Option(help="Hand it out after this time, e.g. 10m.")] = "",
    at: Annotated[str, typer.Option(help="Or hand it out at this time, e.g. 2026-12-01T09:00:00Z.")] = "",
    priority: Annotated[int | None, typer.Option(help="0 to 9. Default: 4.")] = None,
    ttl: Annotated[str, typer.Option(help="Hand it out no later than this, e.g. 1h.")] = "",
    after: Annotated[list[str] | None, typer.Option(help="Wait for this item, ID or NODE#ID; repeatable.")] = None,
    confirm: Annotated[
        str, typer.Option(help="Wait until it is synced or replicated. Default: as the node says.")
    ] = "",
    config: Config = None,
    *,
    regardless: Annotated[bool, typer.Option("--regardless", help="Wait for them however they end.")] = False,
    as_json: Json = False,
) -> None:
    """Publish an item past all doors, as an administrator, and print its id.

    Example: stanzaq item publish jobs --payload '{"total": 12}' --delay 10m
    """
    try:
        body, content_type = sources.read(text, file, kind)
        delay_ms = _ms(delay) if delay else None
        parents = Dependencies.parse_names(" ".join(after or []), regardless=regardless)
        ttl_ms = _ms(ttl) if ttl else None
        hints = Hints.validate(delay_ms, priority, ttl_ms, after=parents, at=at or None, confirm=confirm or None)
        headers = validate_headers(read_headers(header or []))
        envelope = codec.pack(payloads.make_envelope(body, content_type, headers))
    except (sources.Unusable, ValueError) as fault:
        misuse(str(fault))
    except MalformedRequest as fault:
        misuse(fault.detail)
    command = Publish(
        node, ADMINISTRATOR, item or None, envelope, len(body) + header_bytes(headers), key=key, hints=hints
    )
    done = run(config, lambda core: ask(core, command, Published))
    tell({"node": node, "item": done.item_id}) if as_json else lines([[done.item_id]])


def _ms(text: str) -> int:
    return int(seconds(float(text) if text.isdecimal() else text) * 1000)


@app.command("show")
def item_show(
    node: Node,
    item: Annotated[str, typer.Argument(help="The item's id.")],
    config: Config = None,
    *,
    history: Annotated[
        bool, typer.Option("--history", help="Only its attempts that failed, the oldest first.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show an item: its state, lock, attempts, headers and payload.

    Example: stanzaq item show jobs order-17 --history
    """
    found = run(config, lambda core: ask(core, InspectItems(node, ADMINISTRATOR, (item,), 1), InspectedItems))
    if not found.items:
        complain(f"there is no item {item} in {node}")
    if history:
        attempts = views.history(found.items[0])
        if as_json:
            tell({"node": node, "item": item, **attempts})
        else:
            ended = attempts["history_of_death"] + attempts["history"]
            table(views.ATTEMPT, [[each.get(name, "") for name in views.ATTEMPT] for each in ended])
        return
    told = [views.item(one) | views.payload(one) for one in found.items]
    if as_json:
        tell(told[0])
        return
    for one in told:
        table(("", ""), views.item_rows(one), head=False)


@app.command("redrive")
def item_redrive(  # noqa: PLR0913, PLR0917  (an argument is an option of the command line)
    node: Node,
    items: Items = None,
    reason: Annotated[str, typer.Option(help="Only dead letters with this reason.")] = "",
    header: Annotated[
        list[str] | None,
        typer.Option(help="Only dead letters with this header, as NAME=VALUE; again: with all of them."),
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            help="The node to send them to. Default: the node where each died.", autocompletion=nodes_beginning
        ),
    ] = "",
    rate: Annotated[float, typer.Option(min=0.1, help="The most items a second.")] = 100.0,
    config: Config = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All dead letters of the node.")] = False,
    as_json: Json = False,
) -> None:
    """Send dead letters back to be processed again: the named ones, those with a reason or a header, or all.

    Example: stanzaq item redrive jobs/dead --reason max-deliveries --rate 50
    """
    if everything and (items or reason or header):
        misuse("--all means all dead letters of the node: leave it out, or the ids, --reason and --header")
    if not (items or reason or header or everything):
        misuse("which items? Name them, or use --reason REASON, --header NAME=VALUE or --all")
    command = MoveItems(
        node, ADMINISTRATOR, to or None, tuple(items or ()), reason, 1, headers=read_headers(header or [])
    )
    move(command, rate, config, as_json=as_json)


def read_headers(said: list[str]) -> tuple[tuple[str, str], ...]:
    """Read headers from the command line."""
    for each in said:
        if each.find("=") < 1:
            misuse(f"--header {each}: write it as NAME=VALUE")
    return tuple((name, value) for name, _, value in (each.partition("=") for each in said))


@app.command("release")
def item_release(
    node: Node,
    items: Items = None,
    holder: Annotated[str, typer.Option(help="All items that this JID holds; a bare JID includes its resources.")] = "",
    config: Config = None,
    *,
    as_json: Json = False,
) -> None:
    """Force the end of locks: the holder is notified, and the item goes to the next worker at once.

    Example: stanzaq item release jobs order-17
    """
    release(node, items, holder, config, as_json=as_json)


def release(node: str, items: list[str] | None, holder: str, config: Path | None, *, as_json: bool) -> None:
    """End the locks of the named items, or of a holder."""
    if bool(items) == bool(holder):
        misuse("which items? Name them, or use --holder JID")
    command = Release(node, ADMINISTRATOR, tuple(items or ()), jid(holder, "--holder") if holder else None)
    released = run(config, lambda core: ask(core, command, Released))
    if as_json:
        tell({"node": node, "released": released.count})
    else:
        say(f"released {released.count}")


@app.command("cancel")
def item_cancel(
    node: Node,
    item: Annotated[str, typer.Argument(help="The item's id.")],
    config: Config = None,
    *,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Remove an item whether it waits or somebody holds it: its holder is notified.

    Example: stanzaq item cancel jobs order-17
    """
    confirm(f"Cancel the item {item} of {node}?", yes=yes)
    run(config, lambda core: ask(core, Cancel(node, ADMINISTRATOR, item), Cancelled))
    _say_gone("cancelled", node, item, as_json=as_json)


@app.command("delete")
def item_delete(
    node: Node,
    item: Annotated[str, typer.Argument(help="The item's id.")],
    config: Config = None,
    *,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete an item that nobody holds; `stanzaq item cancel` removes a held one too.

    Example: stanzaq item delete jobs order-17
    """
    confirm(f"Delete the item {item} of {node}?", yes=yes)
    run(config, lambda core: ask(core, Retract(node, ADMINISTRATOR, item), Retracted))
    _say_gone("deleted", node, item, as_json=as_json)


def _say_gone(how: str, node: str, item: str, *, as_json: bool) -> None:
    if as_json:
        tell({"node": node, how: item})
    else:
        say(f"{how} {item}")
