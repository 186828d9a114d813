"""The one way to ask the core for something: what it refuses ends the request. Must not know who asks, nor for what."""

from typing import TypeVar

from broker.model.commands import Command
from broker.model.core import Core
from broker.model.results import Refused
from frontends.rest import replies

_T = TypeVar("_T")


async def result(core: Core, command: Command, kind: type[_T]) -> _T:
    """Ask for something, and refuse the request if that is refused; raises Fault."""
    outcome = await core.ask(command)
    if isinstance(outcome, Refused):
        raise replies.of(outcome)
    assert isinstance(outcome, kind), f"{type(outcome).__name__} is no answer to {type(command).__name__}"
    return outcome
