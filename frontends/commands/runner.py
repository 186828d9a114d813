"""Runs one administrative command: asks the core, prints, exits. Must not know what any command does.

Results go to stdout, everything else to stderr: tables on a terminal, tab-separated lines in a pipe. Exit codes: 0 done, 1
refused or not found, 2 usage error.
"""

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from broker.model.commands import Command, ListSchedules, Nodes
from broker.model.core import Core
from broker.model.names import Jid, read_jid
from broker.model.nodes.schedules import ScheduleStatus
from broker.model.problems import CoreUnavailable
from broker.model.results import Listing, Refused, Result, ScheduleList, refusal_of
from broker.settings import SettingsError, load_command
from frontends.terminal import NAME_CHARS, UNUSABLE, escape, fit_columns, settings

if TYPE_CHECKING:
    from broker.redis_core.core import RedisCore

ADMINISTRATOR: Final = Jid("stanzaq")
"""The sender of the shell's commands: nobody's JID, and owner of every node while a command runs.

It needs no authentication: whoever can reach Redis with these settings may use it.
"""

FAILED: Final = 1
"""The exit code of what was refused or not found."""

_PAGE: Final = 500

_T = TypeVar("_T")
_R = TypeVar("_R", bound=Result)


class Unwilling(Exception):  # noqa: N818  (named after the core's state)
    """The core has refused a command."""

    def __init__(self, refused: Refused) -> None:
        """Keep the refusal."""
        super().__init__(refused.detail)
        self.refused = refused


async def ask(core: Core, command: Command, kind: type[_R]) -> _R:
    """Execute a command and return its result; raises Unwilling."""
    result = await core.ask(command)
    if refused := refusal_of(result):
        raise Unwilling(refused)
    assert isinstance(result, kind)
    return result


async def list_schedules(core: Core, node: str) -> AsyncIterator[ScheduleStatus]:
    """Yield the schedules of a node, without their items, a page at a time. Raises Unwilling."""
    after = ""
    while True:
        page = await ask(core, ListSchedules(node, ADMINISTRATOR, _PAGE, after), ScheduleList)
        for each in page.schedules:
            yield each
        after = page.after
        if not after:
            return


def run(config: Path | None, work: Callable[["RedisCore"], Awaitable[_T]]) -> _T:
    """Run `work` on a core; exits with a sentence when it is refused."""
    from frontends import compose  # noqa: PLC0415  (not for `--help`)

    given = settings(config, load_command)
    try:
        return compose.command(given, ADMINISTRATOR, work)
    except Unwilling as fault:
        problem, detail = fault.refused.problem, fault.refused.detail
        complain(f"{detail} ({problem.value})" if detail else problem.value.replace("-", " "))
    except compose.Unreachable as fault:
        misuse(str(fault))
    except CoreUnavailable as fault:
        complain(str(fault))


def jid(text: str, option: str, read: Callable[[str], Jid] = read_jid) -> Jid:
    """Read a JID from the command line, or what else `read` takes; exits with a sentence if it is none."""
    try:
        return read(text)
    except ValueError as fault:
        misuse(f"{option}: {fault}")


def complain(sentence: str) -> NoReturn:
    """Print why something was not done, and exit."""
    say(sentence)
    raise typer.Exit(FAILED)


def misuse(sentence: str) -> NoReturn:
    """Print a usage error, and exit."""
    say(sentence)
    raise typer.Exit(UNUSABLE)


def say(sentence: str) -> None:
    """Print a message beside the results."""
    # Unformatted: it may contain square brackets, and a pipe needs it in one line.
    Console(stderr=True, highlight=False).print(f"stanzaq: {escape(sentence)}", markup=False, soft_wrap=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is changed for good; without a terminal, require --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        misuse("there is no terminal to confirm at: use --yes")
    typer.confirm(question, abort=True, err=True)


@contextmanager
def show_progress() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows progress; only a terminal shows it."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield lambda _text: None
        return
    with screen.status("") as status:
        yield lambda text: status.update(Text(escape(text)))


def tell(record: Any) -> None:  # noqa: ANN401  (what JSON accepts)
    """Print a result for programs, in one line."""
    print(json.dumps(record), flush=True)  # noqa: T201


def lines(rows: Iterable[Sequence[str]]) -> None:
    """Print rows for a pipe, in lines with tabs, at once."""
    for cells in rows:
        print("\t".join(map(escape, cells)), flush=True)  # noqa: T201


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, head: bool = True) -> None:
    """Print rows: as a table with the columns that fit, or in a pipe all of them as tab-separated lines."""
    out = Console()
    if not out.is_terminal:
        lines(chain([columns] if head else [], rows))
        return
    rows = list(rows)
    shown = fit_columns(columns, rows, out.width)
    made = Table(box=None, show_header=head, pad_edge=False)
    for number in shown:
        # Names are never cut: in a narrow terminal they continue in the next line.
        made.add_column(columns[number], overflow="fold", ratio=None, min_width=NAME_CHARS if number == 0 else None)
    for cells in rows:
        made.add_row(*(Text(escape(cells[number])) for number in shown))
    out.print(made)


def nodes_beginning(incomplete: str) -> list[str]:
    """Return node names for shell completion; none when Redis does not answer."""
    from frontends import compose  # noqa: PLC0415

    try:
        listing = compose.command(load_command(), ADMINISTRATOR, lambda core: core.ask(Nodes(ADMINISTRATOR)))
    except (SettingsError, compose.Unreachable, CoreUnavailable):
        return []
    return [name for name in listing.nodes if name.startswith(incomplete)] if isinstance(listing, Listing) else []
