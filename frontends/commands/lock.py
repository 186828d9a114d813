"""`stanzaq lock`: turns the command line into commands of the model. Must not know how they are executed."""

from typing import Annotated

import typer

from broker.model.items.items import ItemDetails, LockDetails
from broker.model.names import Jid, bare_jid
from frontends.commands import views
from frontends.commands.item import Items, Node, release, scan_items
from frontends.commands.runner import jid, run, say, table, tell
from frontends.terminal import Config, Json

app = typer.Typer(help="List locks, and end them.", no_args_is_help=True)

Holder = Annotated[str, typer.Option(help="Only locks of this JID; a bare JID includes its resources.")]

_COLUMNS = ("item", "partition", "holder", "since", "until", "token", "attempts")


@app.command("list")
def lock_list(  # noqa: PLR0913  (an argument is an option of the command line)
    node: Node,
    holder: Holder = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The most locks to list.")] = 100,
    scan: Annotated[str, typer.Option(help="Continue an earlier list.")] = "",
    config: Config = None,
    *,
    as_json: Json = False,
) -> None:
    """List locks: who holds which item, since when and until when.

    Example: stanzaq lock list jobs --holder worker@example.org
    """
    whose = jid(holder, "--holder") if holder else None

    def wanted(one: ItemDetails) -> bool:
        return one.lock is not None and (whose is None or _is_of(one.lock, whose))

    found, place = run(config, lambda core: scan_items(core, node, limit, scan, wanted))
    if as_json:
        shown = [{"item": one.item_id, "partition": one.partition, **(views.lock(one) or {})} for one in found]
        tell({"node": node, "locks": shown, "scan": place})
        return
    table(_COLUMNS, [_row(one, one.lock) for one in found if one.lock])
    if place:
        say(f"there may be more: --scan '{place}'")


def _is_of(lock: LockDetails, whose: Jid) -> bool:
    return whose in {lock.holder, bare_jid(lock.holder)}


def _row(one: ItemDetails, lock: LockDetails) -> tuple[str, ...]:
    since, until = views.format_time(lock.since_ms), views.format_time(lock.deadline_ms)
    return (one.item_id, str(one.partition), lock.holder, since, until, str(lock.token), str(one.attempts))


@app.command("release")
def lock_release(
    node: Node,
    items: Items = None,
    holder: Annotated[str, typer.Option(help="All items that this JID holds; a bare JID includes its resources.")] = "",
    config: Config = None,
    *,
    as_json: Json = False,
) -> None:
    """End locks by force, as `stanzaq item release` does: the holder is notified, and the item goes to the next worker at once.

    Example: stanzaq lock release jobs --holder worker@example.org
    """
    release(node, items, holder, config, as_json=as_json)
