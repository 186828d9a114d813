"""Shared by all commands: reading settings and reporting their faults, refusals, safe text, and which columns of a table fit.

Must not know any command.
"""

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from broker import keys
from broker.settings import RedisSettings, SettingsError
from frontends.tools.servers.process import ServerError

UNUSABLE: Final = 2
"""The exit code of a usage error."""

LEAST_IMPORTANT: Final = (
    *("token", "subid", "pid", "up", "quota", "skipped", "missed", "partitions", "partition", "dying", "delayed"),
    *("attempts", "attempt", "held for", "since", "version", "published", "last", "bytes", "publish_rate"),
    *("host", "owner", "subscribers", "state", "client", "subscriber"),
)
"""Columns of tables that a narrow terminal does not show, in the order in which they go."""

NAME_CHARS: Final = 16
"""The narrowest first column, which has the names."""

_GAP: Final = 2
"""Blanks between two columns."""

_LONGEST: Final = 32
"""Characters: a cell that is longer may continue in the next line."""

_TERMINATED: Final = 128 + signal.SIGTERM

Config = Annotated[Path | None, typer.Option(help="TOML file with settings; environment variables override it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on the last line.")]

_Settings = TypeVar("_Settings", bound=RedisSettings)


def settings(config: Path | None, read: Callable[[Path | None], _Settings]) -> _Settings:
    """Read settings; if they are wrong, print why and exit. Keys have their prefix from now on."""
    try:
        found = read(config)
    except SettingsError as fault:
        refuse("The settings cannot be used", *fault.problems)
    keys.use_prefix(found.key_prefix)
    return found


def refuse(title: str, *lines: str) -> NoReturn:
    """Print a fault as one block, and exit."""
    # Text, not markup: a setting's value may contain square brackets.
    Console(stderr=True).print(Panel(Text("\n".join(lines)), title=title, title_align="left", border_style="red"))
    raise typer.Exit(UNUSABLE)


def run_with_servers(what: str, work: Callable[[], int]) -> int:
    """Run `work`, which starts private servers; if one is missing, or a file is in the way, print which and exit.

    SIGTERM ends it as Ctrl-C does: servers are stopped, and what they kept in temporary directories is removed.
    """
    before = signal.signal(signal.SIGTERM, _on_terminate)
    try:
        return work()
    except ServerError as fault:
        refuse(f"{what} cannot run", str(fault))
    except OSError as fault:
        if fault.filename is None:
            raise
        refuse(f"{what} cannot run", f"{fault.filename}: {fault.strerror or fault}")
    finally:
        signal.signal(signal.SIGTERM, before)


def _on_terminate(*_: object) -> NoReturn:
    # A second signal would cut the end short.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(_TERMINATED)


def fit_columns(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the numbers of the columns to show: empty ones go first, then the least important, until all fit into `width`.

    The first column stays.
    """
    cells = [[column, *(row[number] for row in rows)] for number, column in enumerate(columns)]
    needed = [min(_LONGEST, max(map(len, each))) + _GAP for each in cells]
    needed[0] = max(needed[0], NAME_CHARS + _GAP)
    shown = list(range(len(columns)))
    empty = [number for number in shown[1:] if not any(cells[number][1:])]
    going = [*empty, *(columns.index(name) for name in LEAST_IMPORTANT if name in columns[1:])]
    for number in dict.fromkeys(going):
        if sum(needed[each] for each in shown) - _GAP <= width:
            break
        shown.remove(number)
    return shown


def escape(text: str) -> str:
    """Escape what would control the terminal or break the line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
