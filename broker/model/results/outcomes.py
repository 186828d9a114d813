"""Outcomes of any command. Values only."""

from dataclasses import dataclass

from broker.model.problems import Problem


@dataclass(frozen=True, slots=True)
class Refused:
    """The command changed nothing; `detail` is a sentence for people. It may succeed after `wait_ms`, 0 if nobody knows."""

    problem: Problem
    detail: str = ""
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """The command took effect and returns nothing."""
