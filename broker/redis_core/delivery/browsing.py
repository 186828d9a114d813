"""A browse goes on until there is something to show: a page without items would be taken for the last one (XEP-0059 §2.2).

What one script looks through is bounded, and it may all be versions of items that stand elsewhere. Must not know pipelines.
"""

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

from broker.model.commands import Browse
from broker.model.results import Browsed, Result
from broker.redis_core.commands.internal import Ask


async def browse(command: Browse, first: Awaitable[Any], ask: Ask) -> Result:
    """Look at a page of items; the `first` look is under way."""
    outcome = await first
    while True:
        if not isinstance(outcome, Browsed) or outcome.items or outcome.reached is None:
            return outcome  # type: ignore[no-any-return]
        end, backwards = outcome.reached, command.backwards
        command = replace(command, after=None if backwards else end, before=end if backwards else None)
        outcome = await ask(command)
