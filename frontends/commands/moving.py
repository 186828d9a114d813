"""A transfer of many items, step by step: at a rate, with progress, ended at any time. Must not know why they are moved."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from broker.model.commands import Stats, Transfer
from broker.model.core import Core
from broker.model.results import Counted, Transferred
from frontends.commands.runner import asked, complain, run, say, tell

_STEPS_A_SECOND: Final = 5
_MOST_A_STEP: Final = 200


@dataclass(slots=True)
class Moved:
    """What has come of it so far."""

    count: int = 0
    stayed: Counter[str] = field(default_factory=Counter)
    whole: bool = False

    def record(self) -> dict[str, Any]:
        """Give it as JSON has it; `whole` is whether it came to its end."""
        return {"moved": self.count, "stayed": dict(self.stayed), "whole": self.whole}


async def transferred(core: Core, command: Transfer, rate: float, moved: Moved) -> None:
    """Move all that the command means, at most `rate` items a second, and keep count in `moved`."""
    steps = max(1, min(_MOST_A_STEP, int(rate / _STEPS_A_SECOND)))
    total = len(command.item_ids) or await _waiting(core, command)
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
            done = await asked(core, command, Transferred)
            moved.count += done.count
            moved.stayed.update(done.passed)
            moved.whole = not done.scan
            command = replace(command, scan=done.scan)
            bar.update(task, completed=moved.count + moved.stayed.total())
            # What was too fast is waited for; what is slow is not made up for.
            await asyncio.sleep(max(0.0, began + moved.count / rate - time.monotonic()) if not moved.whole else 0)


async def _waiting(core: Core, command: Transfer) -> int:
    counted = await asked(core, Stats(command.node, command.sender), Counted)
    return counted.waiting


def move(command: Transfer, rate: float, config: Path | None, *, as_json: bool) -> None:
    """Move items and say what came of it, also when it is ended before its end."""
    moved = Moved()
    try:
        run(config, lambda core: transferred(core, command, rate, moved))
    finally:
        # Ctrl-C, or a refusal in the middle: what was begun is done all the same.
        if moved.count or moved.whole:
            _told(moved, as_json=as_json)
    if command.item_ids and not moved.count:
        complain("none of these items waits there")


def _told(moved: Moved, *, as_json: bool) -> None:
    if as_json:
        tell(moved.record())
        return
    say(f"moved {moved.count}" + ("" if moved.whole else ", and has not come to the end"))
    for why, count in moved.stayed.items():
        say(f"{count} stayed: {why}")
