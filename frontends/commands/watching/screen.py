"""`stanzaq top` and `stanzaq journal tail`: look again and again, and show what is new. Must not know how anything is drawn.

On a terminal they show a live view until Ctrl-C; in a pipe they print lines, with --json one JSON object in each.
"""

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.live import Live

from broker.model.commands import Overview
from broker.model.names import Partition
from broker.model.results import Overviewed, Summary
from frontends.commands.runner import ADMINISTRATOR, ask, complain, lines, misuse, nodes_beginning, run, tell
from frontends.commands.watching import live
from frontends.terminal import Config, Json

if TYPE_CHECKING:
    from broker.redis_core.core import RedisCore

journal = typer.Typer(help="Watch delivery attempts end.", no_args_is_help=True)

MOST_PARTITIONS: Final = 1_000
_PAGE: Final = 1_000
_AT_ONCE: Final = 200
_AGAIN_SECONDS: Final = 5.0
_FIRST: Final = "0-0"
"""The position before all records."""

Every = Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")]


@journal.callback()
def begin() -> None:
    """Begin each command."""


def top(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The most nodes to show.")] = 20,
    every: Every = 2.0,
    count: Annotated[
        int, typer.Option(min=0, help="End after this many looks. Default: one in a pipe, else none.")
    ] = 0,
    config: Config = None,
    *,
    as_json: Json = False,
) -> None:
    """Show the busiest nodes: items published and finished a second, and what waits; Ctrl-C ends it.

    Example: stanzaq top --limit 10
    """
    screen = Console()
    looks = count or (0 if screen.is_terminal and not as_json else 1)

    async def watch(core: "RedisCore") -> None:
        with _live_view(screen, as_json=as_json) as view:
            number, before, then = 0, await _nodes(core), time.monotonic()
            while not looks or number < looks:
                await asyncio.sleep(every)
                found, now = await _nodes(core), time.monotonic()
                listed = live.activity(before, found.values(), now - then)
                number, before, then = number + 1, found, now
                shown, waiting = listed[:limit], sum(each.waiting for each in listed)
                if as_json:
                    tell({"nodes": [each.to_json() for each in shown], "total": len(listed)})
                elif view:
                    caption = f"{len(listed)} nodes, {waiting} items wait"
                    drawn = live.draw(live.NODES, [each.cells() for each in shown], caption, screen.width)
                    view.update(drawn, refresh=True)
                else:
                    lines([live.NODES] if number == 1 else [])
                    lines(each.cells() for each in shown)

    with contextlib.suppress(KeyboardInterrupt):
        run(config, watch)


async def _nodes(core: "RedisCore") -> dict[str, Summary]:
    found: dict[str, Summary] = {}
    while True:
        page = await ask(core, Overview(ADMINISTRATOR, len(found), _PAGE), Overviewed)
        found |= {one.record.name: one for one in page.nodes}
        if len(page.nodes) < _PAGE:
            return found


@journal.command("tail")
def journal_tail(  # noqa: PLR0913  (an argument is an option of the command line)
    node: Annotated[str, typer.Option(help="Only this node.", autocompletion=nodes_beginning)] = "",
    number: Annotated[
        int, typer.Option("--lines", min=0, max=1_000, help="Begin with this many of the last ones.")
    ] = 10,
    every: Every = 0.5,
    config: Config = None,
    *,
    follow: Annotated[bool, typer.Option(help="Go on as attempts end, until Ctrl-C.")] = True,
    as_json: Json = False,
) -> None:
    """Show delivery attempts as they end: when, how, which item, and who held it for how long.

    Example: stanzaq journal tail --node jobs
    """
    screen = Console()

    async def watch(core: "RedisCore") -> None:
        outcomes = Counter[str]()
        with _live_view(screen, as_json=as_json) as view:
            kept = deque[live.EndedAttempt](maxlen=max(number, screen.height - 4))
            head: list[tuple[str, ...]] = [live.ATTEMPTS]
            async for found in _follow_records(core, node, number, every, follow=follow):
                outcomes.update(str(each.record["type"]) for each in found)
                kept.extend(found)
                if as_json:
                    for each in found:
                        tell(each.to_json())
                elif view:
                    rows = [each.cells() for each in kept]
                    drawn = live.draw(live.ATTEMPTS, rows, live.counts(outcomes), screen.width)
                    view.update(drawn, refresh=True)
                else:
                    lines([*head, *(each.cells() for each in found)])
                    head = []

    with contextlib.suppress(KeyboardInterrupt):
        run(config, watch)


async def _follow_records(
    core: "RedisCore", node: str, last: int, every: float, *, follow: bool
) -> AsyncIterator[list[live.EndedAttempt]]:
    """Yield the last records of the journals in the order of time, then those that follow."""
    places = dict.fromkeys(await _partitions(core, node), "")
    found, _behind = await _read(core, places, max(last, 1))
    yield found[-last:] if last else []
    looked = time.monotonic()
    while follow:
        if time.monotonic() - looked > _AGAIN_SECONDS:
            current, looked = await _partitions(core, node), time.monotonic()
            places = {each: places.get(each, _FIRST) for each in current}
        found, behind = await _read(core, places, _AT_ONCE)
        yield found
        if not behind:
            await asyncio.sleep(every)


async def _read(core: "RedisCore", places: dict[Partition, str], most: int) -> tuple[list[live.EndedAttempt], bool]:
    """Read the next records, and move the places behind them; tell also whether a partition may have more."""
    found, behind = [], False
    for partition, records in (await core.journal(places, most)).items():
        places[partition] = records[-1][0] if records else places[partition] or _FIRST
        behind |= len(records) == most
        found += [live.EndedAttempt(partition.node, partition.number, record) for _, record in records]
    return sorted(found, key=lambda each: each.record["closed"]), behind


async def _partitions(core: "RedisCore", node: str) -> list[Partition]:
    nodes = await _nodes(core)
    if node and node not in nodes:
        complain(f"there is no node {node}")
    chosen = [nodes[node]] if node else nodes.values()
    found = [each for one in chosen for each in one.record.partitions]
    if len(found) > MOST_PARTITIONS:
        misuse(f"these are {len(found)} partitions, and at most {MOST_PARTITIONS} can be watched: use --node")
    return found


@contextmanager
def _live_view(screen: Console, *, as_json: bool) -> Iterator[Live | None]:
    """Yield a live view, if this is a terminal for people."""
    if as_json or not screen.is_terminal:
        yield None
        return
    with Live(console=screen, auto_refresh=False, vertical_overflow="crop") as view:
        yield view
