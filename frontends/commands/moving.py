"""Moves many items in steps: at a rate, with progress, and interruptible. Must not know why they are moved."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from broker.model.commands import MoveItems, Stats
from broker.model.core import Core
from broker.model.results import Counted, MovedItems
from frontends.commands.runner import FAILED, ask, complain, run, say, tell

_STEPS_A_SECOND: Final = 5
_MOST_A_STEP: Final = 200


@dataclass(slots=True)
class Moved:
    """The result so far."""

    count: int = 0
    stayed: Counter[str] = field(default_factory=Counter)
    whole: bool = False

    def record(self) -> dict[str, Any]:
        """Return the result as a JSON object; `whole` is whether the move has finished."""
        return {"moved": self.count, "stayed": dict(self.stayed), "whole": self.whole}


async def move_items(core: Core, command: MoveItems, rate: float, moved: Moved) -> None:
    """Move all items of the command, at most `rate` a second, and count them in `moved`."""
    steps = max(1, min(_MOST_A_STEP, int(rate / _STEPS_A_SECOND)))
    total = len(command.item_ids) or await _count_waiting(core, command)
    screen = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=screen,
        disable=not screen.is_terminal,
        transient=True,
    )
    began = time.monotonic()
    with bar:
        task = bar.add_task("moving", total=total)
        while not moved.whole:
            command = replace(command, limit=steps)
            done = await ask(core, command, MovedItems)
            moved.count += done.count
            moved.stayed.update(done.passed)
            moved.whole = not done.scan
            command = replace(command, scan=done.scan)
            bar.update(task, completed=moved.count + moved.stayed.total())
            # Wait after a step that was too fast; do not catch up after a slow one.
            await asyncio.sleep(max(0.0, began + moved.count / rate - time.monotonic()) if not moved.whole else 0)


async def _count_waiting(core: Core, command: MoveItems) -> int:
    counted = await ask(core, Stats(command.node, command.sender), Counted)
    return counted.waiting


def move(command: MoveItems, rate: float, config: Path | None, *, as_json: bool) -> None:
    """Move items and print the result, even when interrupted."""
    moved = Moved()
    try:
        run(config, lambda core: move_items(core, command, rate, moved))
    finally:
        # On Ctrl-C or a refusal, the finished steps stay done.
        if moved.count or moved.whole:
            _show_moved(moved, as_json=as_json)
    if moved.stayed and not moved.count:
        raise typer.Exit(FAILED)
    if command.item_ids and not moved.count:
        complain("none of these items is waiting there")


def _show_moved(moved: Moved, *, as_json: bool) -> None:
    if as_json:
        tell(moved.record())
        return
    say(f"moved {moved.count}" + ("" if moved.whole else ", not finished"))
    for why, count in moved.stayed.items():
        say(f"{count} stayed: {why}")
