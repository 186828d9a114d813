"""Tells which refused publishes may repeat stored ones, so that their partition must be asked before they are answered.

A limit of the node, of a publisher or of an owner refuses a publish before its partition could recognise it. But a publisher
that has lost an answer must learn that its item is stored. Only refused publishes pay for that. Pure.
"""

from typing import Final

from broker.model.commands import Publish
from broker.model.nodes import NodeRecord
from broker.model.options import Dedupe
from broker.model.problems import Problem
from broker.redis_core.commands.internal import FindRepeat, convert

_FOR_NOW: Final = frozenset(
    {
        Problem.TOO_FAST,
        Problem.QUOTA_EXCEEDED,
        Problem.NODE_DRAINING,
        Problem.OUT_OF_MEMORY,
        Problem.PAYLOAD_TOO_BIG,
        Problem.PRECONDITION_NOT_MET,
        Problem.UNSUPPORTED,
    }
)
"""Problems for which a publish may be refused though the same one was accepted before and is stored.

Not among them: that somebody may not publish. Such a sender learns nothing of what is stored.
"""


def may_be_stored(problem: Problem) -> bool:
    """Return whether a publish that is refused for this may be stored already."""
    return problem in _FOR_NOW


def question(command: Publish, record: NodeRecord | None = None) -> FindRepeat | None:
    """Return what to ask the partition of a publish; None if it cannot be a repeat in a node with this record."""
    waits = bool(command.hints.after)
    by_id = command.item_id and (waits or record is None or record.config.dedupe is Dedupe.IGNORE)
    if not (command.ticket or by_id):
        return None
    question: FindRepeat = convert(command, FindRepeat, waits=waits)
    return question
