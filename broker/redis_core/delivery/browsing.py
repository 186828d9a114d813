"""Repeats a browse until a page has items: clients take a page without items for the last one (XEP-0059 §2.2).

One script reads a bounded number of entries, and all of them may be old versions. Must not know pipelines.
"""

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

from broker.model.commands import Browse
from broker.model.results import Browsed, Result
from broker.redis_core.commands.internal import Ask


async def browse(command: Browse, first: Awaitable[Any], ask: Ask) -> Result:
    """Return a page of items; `first` is the outcome of the first read."""
    outcome = await first
    while True:
        if not isinstance(outcome, Browsed) or outcome.items or outcome.reached is None:
            return outcome  # type: ignore[no-any-return]
        end, backwards = outcome.reached, command.backwards
        command = replace(command, after=None if backwards else end, before=end if backwards else None)
        outcome = await ask(command)
