"""A peer's outcome of a delivery (part 3 §3.4). Values only."""

from enum import Enum, auto

from broker.model.frozen import frozen


class OutcomeKind(Enum):
    """The terminal states."""

    ACCEPTED = auto()
    REJECTED = auto()
    RELEASED = auto()
    MODIFIED = auto()


@frozen
class Outcome:
    """A terminal state. A modified delivery may have `failed`, and may be for other consumers only (`elsewhere`)."""

    kind: OutcomeKind
    reason: str = ""
    failed: bool = False
    elsewhere: bool = False
