"""`stanzaq frontend`: turns the command line into commands of the model. Must not know how they are executed."""

from dataclasses import asdict
from typing import Annotated

import typer

from broker.model.commands import Disconnect, Frontends
from broker.model.results import Disconnected, FrontendList
from frontends.commands import views
from frontends.commands.runner import ADMINISTRATOR, asked, complain, confirm, run, say, table, tell
from frontends.terminal import Config, Json

app = typer.Typer(help="List frontends, and disconnect one.", no_args_is_help=True)

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


@app.command("list")
def frontend_list(config: Config = None, *, as_json: Json = False) -> None:
    """List frontends: the time since each one's last heartbeat, and which have been disconnected.

    Example: stanzaq frontend list
    """
    found = run(config, lambda core: asked(core, Frontends(ADMINISTRATOR), FrontendList))
    if as_json:
        tell({"frontends": [asdict(each) for each in found.frontends]})
        return
    rows = [
        (each.name, f"{views.age(each.ago_ms) or 'now'}", each.disconnected_by, each.door) for each in found.frontends
    ]
    table(("frontend", "last heartbeat", "disconnected by", "door"), rows)


@app.command("disconnect")
def frontend_disconnect(
    name: Annotated[str, typer.Argument(help="The frontend's name, as in the list.")],
    config: Config = None,
    *,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Disconnect a frontend: the others take over its unsent deliveries at once, and it ends as soon as it notices.

    Example: stanzaq frontend disconnect 1edc2653 --yes
    """
    confirm(f"Disconnect the frontend {name}?", yes=yes)
    done = run(config, lambda core: asked(core, Disconnect(ADMINISTRATOR, name), Disconnected))
    if as_json:
        tell({"frontend": name, "listed": done.listed})
    elif done.listed:
        say(f"disconnected {name}")
    if not done.listed:
        complain(f"{name} is not in the list; if it is still running, it will end")
