"""`stanzaq item`: turns the command line into commands of the model. Must not know how they are executed."""

from typing import Annotated

import typer

from broker.model.commands import Cancel, InspectItems, MoveItems, Release, Retract
from broker.model.core import Core
from broker.model.items import ItemDetails
from broker.model.names import prepared
from broker.model.results import Cancelled, InspectedItems, Released, Retracted
from frontends.commands import views
from frontends.commands.moving import move
from frontends.commands.runner import (
    ADMINISTRATOR,
    asked,
    complain,
    confirm,
    misuse,
    nodes_beginning,
    run,
    say,
    table,
    tell,
)
from frontends.terminal import Config, Json

app = typer.Typer(help="List, cancel and delete items, redrive dead letters, end locks.", no_args_is_help=True)

Node = Annotated[str, typer.Argument(help="The node's name.", autocompletion=nodes_beginning)]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
Items = Annotated[list[str] | None, typer.Argument(help="Ids of items.")]

_COLUMNS = ("item", "partition", "state", "attempts", "published", "holder", "reason")


@app.command("list")
def item_list(  # noqa: PLR0913  (an argument is an option of the command line)
    node: Node,
    state: Annotated[str, typer.Option(help="Only items in this state: waiting, delayed, locked, dying or kept.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The most items to list.")] = 50,
    scan: Annotated[str, typer.Option(help="Continue an earlier list.")] = "",
    config: Config = None,
    *,
    as_json: Json = False,
) -> None:
    """List items in the order of each partition.

    Example: stanzaq item list jobs/dead --limit 20
    """

    async def look(core: Core) -> tuple[list[ItemDetails], str]:
        found: list[ItemDetails] = []
        going, place = True, scan
        while going:
            part = await asked(core, InspectItems(node, ADMINISTRATOR, (), limit - len(found), place), InspectedItems)
            found += [one for one in part.items if state in {"", one.state}]
            place = part.scan
            going = bool(place) and len(found) < limit
        return found, place

    found, place = run(config, look)
    if as_json:
        tell({"node": node, "items": [views.item(one) for one in found], "scan": place})
        return
    table(_COLUMNS, [views.item_row(one) for one in found])
    if place:
        say(f"there may be more: --scan '{place}'")


@app.command("show")
def item_show(
    node: Node,
    item: Annotated[str, typer.Argument(help="The item's id.")],
    config: Config = None,
    *,
    as_json: Json = False,
) -> None:
    """Show an item: its state, lock, attempts, headers and payload.

    Example: stanzaq item show jobs order-17
    """
    found = run(config, lambda core: asked(core, InspectItems(node, ADMINISTRATOR, (item,), 1), InspectedItems))
    if not found.items:
        complain(f"there is no item {item} in {node}")
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
    to: Annotated[str, typer.Option(help="The node to send them to. Default: the node where each died.")] = "",
    rate: Annotated[float, typer.Option(min=0.1, help="The most items a second.")] = 100.0,
    config: Config = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All dead letters of the node.")] = False,
    as_json: Json = False,
) -> None:
    """Send dead letters back to be processed again: the named ones, those with a reason or a header, or all.

    Example: stanzaq item redrive jobs/dead --reason max-deliveries --rate 50
    """
    if not (items or reason or header or everything):
        misuse("which items? Name them, or use --reason REASON, --header NAME=VALUE or --all")
    command = MoveItems(node, ADMINISTRATOR, to or None, tuple(items or ()), reason, 1, headers=_headers(header or []))
    move(command, rate, config, as_json=as_json)


def _headers(said: list[str]) -> tuple[tuple[str, str], ...]:
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
    if bool(items) == bool(holder):
        misuse("which items? Name them, or use --holder JID")
    command = Release(node, ADMINISTRATOR, tuple(items or ()), prepared(holder) if holder else None)
    released = run(config, lambda core: asked(core, command, Released))
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
    run(config, lambda core: asked(core, Cancel(node, ADMINISTRATOR, item), Cancelled))
    if as_json:
        tell({"node": node, "cancelled": item})
    else:
        say(f"cancelled {item}")


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
    run(config, lambda core: asked(core, Retract(node, ADMINISTRATOR, item), Retracted))
    if as_json:
        tell({"node": node, "deleted": item})
    else:
        say(f"deleted {item}")
