"""Outcomes of any command. Values only."""

from dataclasses import dataclass

from broker.model.problems import Problem


@dataclass(frozen=True, slots=True)
class Refused:
    """The command changed nothing; `detail` is a sentence for people."""

    problem: Problem
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """The command took effect and returns nothing."""
