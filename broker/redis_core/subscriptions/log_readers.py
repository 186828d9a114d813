"""Which partitions a stream reads, and what each of a node's partitions is told about it. Pure; must not know pipelines or Redis.

Each partition that is read keeps the reader's place of its own, with all of its credit; every other one knows the
subscription, so that whoever asks any partition hears of it.
"""

from broker.model import offsets
from broker.model.commands import Subscribe
from broker.model.nodes import NodeRecord
from broker.model.options import STREAM_CREDIT
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Subscribed
from broker.redis_core.commands.internal import Outcome, SubscribeLog
from broker.redis_core.registry.partitioner import hashed


def reads(command: Subscribe, record: NodeRecord) -> bool:
    """Tell whether a subscribe is a stream's: it says where to start, or the node is a log."""
    return bool(command.start) or not record.config.queueing


def chosen(command: Subscribe, count: int) -> tuple[int, ...]:
    """Choose the partitions that a stream reads: those it names, or that of its offset, or one by its JID (E10).

    Raises MalformedRequest when they cannot all begin where it says.
    """
    named = offsets.named(command.start or offsets.LATEST)
    if command.partitions:
        if named is not None and len(command.partitions) > 1:
            raise MalformedRequest(
                Problem.OPTIONS_INVALID, "an offset is of one partition: subscribe to that one alone"
            )
        return command.partitions
    return (hashed(command.jid, count) if named is None else named,)


def follow(command: Subscribe, partition: int, *, reading: bool) -> SubscribeLog:
    """Tell a partition of the stream; when it is not told otherwise it begins with what comes after (E3)."""
    start = (command.start or offsets.LATEST) if reading else ""
    credit = STREAM_CREDIT if command.credit is None else command.credit
    return SubscribeLog(
        command.node, command.sender, command.jid, credit, command.qos, start, partition, command.until_ms
    )


def followed(outcomes: list[Outcome]) -> Outcome:
    """Make one outcome of those of the partitions that are read."""
    granted = [outcome for outcome in outcomes if isinstance(outcome, Subscribed)]
    if len(granted) < len(outcomes):
        return next(outcome for outcome in outcomes if not isinstance(outcome, Subscribed))
    first = granted[0]
    streams = tuple(stream for outcome in granted for stream in outcome.streams)
    until_ms = max(outcome.until_ms for outcome in granted)
    return Subscribed(first.jid, first.subid, first.credit, reads=True, streams=streams, until_ms=until_ms)
