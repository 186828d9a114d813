"""`stanzaq frontend`: turns the command line into commands of the model. Must not know how they are executed."""

from dataclasses import asdict
from typing import Annotated

import typer

from broker.model.commands import Disconnect, Frontends
from broker.model.results import Disconnected, FrontendList, FrontendStatus
from frontends.commands import views
from frontends.commands.runner import ADMINISTRATOR, ask, complain, confirm, run, say, table, tell
from frontends.terminal import Config, Json

app = typer.Typer(help="List frontends, and disconnect one.", no_args_is_help=True)

_COLUMNS = ("frontend", "last heartbeat", "disconnected by", "door", "host", "pid", "version", "up")

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


@app.command("list")
def frontend_list(config: Config = None, *, as_json: Json = False) -> None:
    """List frontends: door, host, process, version, how long each has run, its last heartbeat, and who has disconnected it.

    Example: stanzaq frontend list
    """
    found = run(config, lambda core: ask(core, Frontends(ADMINISTRATOR), FrontendList))
    if as_json:
        tell({"frontends": [asdict(each) for each in found.frontends]})
        return
    table(_COLUMNS, map(_row, found.frontends))


def _row(one: FrontendStatus) -> tuple[str, ...]:
    """Return a frontend as cells; what an older version does not tell is empty."""
    runs = (one.host, str(one.pid or ""), one.version, views.age(one.up_ms))
    return (one.name, views.age(one.ago_ms) or "now", one.disconnected_by, one.door, *runs)


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
    done = run(config, lambda core: ask(core, Disconnect(ADMINISTRATOR, name), Disconnected))
    if as_json:
        tell({"frontend": name, "listed": done.listed})
    elif done.listed:
        say(f"disconnected {name}")
    if not done.listed:
        complain(f"{name} is not in the list; if it is still running, it will end")
