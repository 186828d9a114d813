"""`stanzaq frontend`: words of the command line to commands of the model. Must not know how anything is done."""

from dataclasses import asdict
from typing import Annotated

import typer

from broker.model.commands import Disconnect, Frontends
from broker.model.results import Disconnected, FrontendList
from frontends.commands import views
from frontends.commands.runner import ADMINISTRATOR, asked, complain, confirm, run, say, table, tell
from frontends.terminal import Config, Json

app = typer.Typer(help="Look at frontends, and end one that is sick.", no_args_is_help=True)

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command("list")
def frontend_list(config: Config = None, *, as_json: Json = False) -> None:
    """List frontends: when each was heard of, and which are told to end.

    Example: stanzaq frontend list
    """
    found = run(config, lambda core: asked(core, Frontends(ADMINISTRATOR), FrontendList))
    if as_json:
        tell({"frontends": [asdict(each) for each in found.frontends]})
        return
    rows = [
        (each.name, f"{views.age(each.ago_ms) or 'now'}", each.disconnected_by, each.door) for each in found.frontends
    ]
    table(("frontend", "heard of, ago", "disconnected by", "door"), rows)


@app.command("disconnect")
def frontend_disconnect(
    name: Annotated[str, typer.Argument(help="The frontend's name, as the list has it.")],
    config: Config = None,
    *,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Have a frontend end; the others take over at once what it has not sent, and one that hangs ends when it wakes.

    Example: stanzaq frontend disconnect 1edc2653 --yes
    """
    confirm(f"Disconnect the frontend {name}?", yes=yes)
    done = run(config, lambda core: asked(core, Disconnect(ADMINISTRATOR, name), Disconnected))
    if as_json:
        tell({"frontend": name, "listed": done.listed})
    elif done.listed:
        say(f"disconnected {name}")
    if not done.listed:
        complain(f"{name} is not in the list (any more); if it lives, it ends")
