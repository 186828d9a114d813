"""`stanzaq subscriber`: turns the command line into commands of the model. Must not know how they are executed."""

from typing import Annotated

import typer

from broker.model.commands import ListSubscribers
from broker.model.pages import Page
from broker.model.results import SubscriptionList
from frontends.commands.runner import ADMINISTRATOR, ask, nodes_beginning, run, say, table, tell
from frontends.terminal import Config, Json

app = typer.Typer(help="List the subscribers of a node.", no_args_is_help=True)


@app.callback()
def subscriber() -> None:
    """Begin each command."""


@app.command("list")
def subscriber_list(
    node: Annotated[str, typer.Argument(help="The node's name.", autocompletion=nodes_beginning)],
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The most subscribers to list.")] = 100,
    after: Annotated[str, typer.Option(help="Continue an earlier list.")] = "",
    config: Config = None,
    *,
    as_json: Json = False,
) -> None:
    """List the subscribers of a node: how many items each one holds, and may still take.

    Example: stanzaq subscriber list jobs
    """
    command = ListSubscribers(node, ADMINISTRATOR, Page(limit, after=after or None))
    found = run(config, lambda core: ask(core, command, SubscriptionList))
    listed = found.subscriptions
    place = listed[-1].place if listed and found.index + len(listed) < found.count else ""
    if as_json:
        rows = [
            {
                "subscriber": one.jid,
                "subid": one.subid,
                "client": one.client,
                "state": one.state.value,
                "credit": one.credit,
                "held": one.held,
            }
            for one in listed
        ]
        tell({"node": node, "subscribers": rows, "total": found.count, "after": place})
        return
    columns = ("subscriber", "subid", "state", "credit", "held", "client")
    table(
        columns, [(one.jid, one.subid, one.state.value, str(one.credit), str(one.held), one.client) for one in listed]
    )
    if place:
        say(f"there are more: --after '{place}'")
