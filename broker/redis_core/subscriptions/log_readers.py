"""Which partitions a log reader reads, and the command for each partition. Pure; must not know pipelines or Redis.

Each partition that is read keeps a position of its own with the full credit; the others only know the subscription, so that any
partition can answer for it.
"""

from broker.model import offsets
from broker.model.commands import Subscribe
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.options import STREAM_CREDIT
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Subscribed
from broker.redis_core.commands.internal import Outcome, SubscribeLog
from broker.redis_core.registry.partitioner import choose_by_hash


def makes_log_reader(command: Subscribe, record: NodeRecord) -> bool:
    """Return whether a subscribe makes a log reader: it names a start position, or the node is a log."""
    return bool(command.start) or not record.config.queueing


def partitions_to_read(command: Subscribe, count: int) -> tuple[int, ...]:
    """Choose the partitions to read: the named ones, that of the start offset, or one by the JID's hash (E10).

    Raises MalformedRequest when the start offset does not fit all of them.
    """
    named = offsets.read_partition(command.start or offsets.LATEST)
    if command.partitions:
        if named is not None and len(command.partitions) > 1:
            raise MalformedRequest(
                Problem.OPTIONS_INVALID, "an offset belongs to one partition: subscribe to that one alone"
            )
        return command.partitions
    return (choose_by_hash(command.jid, count) if named is None else named,)


def subscribe_command(command: Subscribe, partition: int, *, reading: bool) -> SubscribeLog:
    """Build the command for one partition; by default reading starts after the newest entry (E3)."""
    start = (command.start or offsets.LATEST) if reading else ""
    credit = STREAM_CREDIT if command.credit is None else command.credit
    return SubscribeLog(
        command.node, command.sender, command.jid, credit, command.qos, start, partition, command.until_ms
    )


def merge_subscribed(outcomes: list[Outcome]) -> Outcome:
    """Merge the outcomes of the partitions that are read."""
    granted = [outcome for outcome in outcomes if isinstance(outcome, Subscribed)]
    if len(granted) < len(outcomes):
        return next(outcome for outcome in outcomes if not isinstance(outcome, Subscribed))
    first = granted[0]
    streams = tuple(stream for outcome in granted for stream in outcome.streams)
    until_ms = max(outcome.until_ms for outcome in granted)
    return Subscribed(first.jid, first.subid, first.credit, reads=True, streams=streams, until_ms=until_ms)
