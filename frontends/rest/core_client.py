"""Asks the core; a refusal ends the request. Must not know the request."""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TypeVar

from broker.model.commands import Command
from broker.model.core import Core
from broker.model.results import Result, refusal_of
from broker.tasks import fulfil
from frontends.rest.errors import fault

_T = TypeVar("_T")


async def result(core: Core, command: Command, kind: type[_T]) -> _T:
    """Execute a command and return its result; raises Fault if it is refused."""
    outcome = await core.ask(command)
    if isinstance(outcome, kind):
        return outcome
    refused = refusal_of(outcome)
    assert refused, f"{type(outcome).__name__} is no answer to {type(command).__name__}"
    raise fault(refused)


async def ask_all(core: Core, commands: Iterable[Command]) -> list[Result]:
    """Execute commands of one turn, none of which waits for something to happen, and return their results in order."""
    loop = asyncio.get_running_loop()
    # A task for each would take as long again as its answer.
    futures = [(command, loop.create_future()) for command in commands]
    for command, future in futures:
        core.submit(command, partial(fulfil, future))
    return [await future for _command, future in futures]
