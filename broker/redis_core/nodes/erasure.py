"""Lets administrators note in the audit what they have erased; must not know what an account has, nor how it is erased."""

from typing import Final

from broker.model.commands import NoteErasure
from broker.model.problems import Problem
from broker.model.results import Done, Refused, Result
from broker.redis_core.records.validation import Rules

_FORBIDDEN: Final = Refused(Problem.FORBIDDEN, "only administrators may erase what belongs to an account")


class Erasure:
    """Carries out `NoteErasure`."""

    def __init__(self, rules: Rules) -> None:
        """Know who administers."""
        self._rules = rules

    async def note(self, command: NoteErasure) -> Result:
        """Allow an erasure: the audit writes what the command says."""
        return Done() if self._rules.roles.lets(command) else _FORBIDDEN
