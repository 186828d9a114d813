"""Asks the core; a refusal ends the request. Must not know the request."""

from typing import TypeVar

from broker.model.commands import Command
from broker.model.core import Core
from broker.model.results import refusal_of
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
