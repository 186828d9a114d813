"""Finds duplicates in a node that has grown: a publish is first offered to the partitions that its item belonged to before.

A former partition accepts the publish only if it knows the item or the ticket, and says so if not; it stores nothing new. So two
frontends that repeat one publish find the same item. Later commands for a partition wait behind such a publish and keep their
order. Must not know what any command does.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from broker.model.nodes import NodeRecord
from broker.redis_core.commands.internal import AnyCommand, Outcome, Unknown, convert
from broker.redis_core.partitions.pipeline import PartitionPipeline
from broker.redis_core.registry.rows import ROWS, place

Reply = Callable[[Any], None]


@dataclass(slots=True, eq=False)
class Waiting:
    """A command that waits for its partition; `ready` after the last former partition answered, without a command when done."""

    command: AnyCommand | None
    reply: Reply
    ready: bool
    growth: tuple[str, tuple[int, ...]]


class FormerPartitions:
    """Brings commands to the partitions of one node."""

    def __init__(
        self, pipeline: Callable[[int], PartitionPipeline], submit: Callable[[AnyCommand, Reply], None]
    ) -> None:
        """Find partitions by `pipeline`; a command whose node grew again meanwhile goes back to `submit`."""
        self._pipeline = pipeline
        self._submit = submit
        self._growth: tuple[str, tuple[int, ...]] = ("", ())
        self._exhausted: set[tuple[type, int]] = set()
        self._queues: dict[int, deque[Waiting]] = {}

    def set_growth(self, record: NodeRecord | None) -> None:
        """Note how many partitions the node had before."""
        if record is None:
            return
        growth = (record.incarnation, () if record.config.collects else record.former)
        if growth != self._growth:
            self._growth = growth
            self._exhausted.clear()

    def submit(self, command: AnyCommand, reply: Reply, number: int) -> None:
        """Send a command to its partition, after the former partitions of its item."""
        former = self._growth[1]
        left = _former_places(command, former, number) if former else []
        if left:
            left = [each for each in left if (type(command), each) not in self._exhausted]
        if not left and number not in self._queues:
            self._pipeline(number).submit(command, reply)
            return
        waiting = Waiting(command, reply, not left, self._growth)
        self._queues.setdefault(number, deque()).append(waiting)
        if left:
            self._ask(waiting, number, left)

    def _ask(self, waiting: Waiting, number: int, left: list[int]) -> None:
        assert waiting.command is not None
        self._pipeline(left[0]).submit(
            _to_former_command(waiting.command), partial(self._on_answer, waiting, number, left)
        )

    def _on_answer(self, waiting: Waiting, number: int, left: list[int], outcome: Outcome | Unknown) -> None:
        if not isinstance(outcome, Unknown):
            waiting.command = None
        else:
            # The answer holds for the growth at the time of the question only.
            if outcome.over and waiting.growth == self._growth:
                self._exhausted.add((type(waiting.command), left[0]))
            if left[1:]:
                self._ask(waiting, number, left[1:])
                return
        waiting.ready = True
        self._submit_ready(number)
        if waiting.command is None:
            waiting.reply(outcome)

    def _submit_ready(self, number: int) -> None:
        queue = self._queues[number]
        while queue and queue[0].ready:
            waiting = queue.popleft()
            if waiting.command is None:
                continue
            if waiting.growth == self._growth:
                self._pipeline(number).submit(waiting.command, waiting.reply)
            else:
                self._submit(waiting.command, waiting.reply)
        if not queue:
            del self._queues[number]


def _former_places(command: AnyCommand, former: Sequence[int], number: int) -> list[int]:
    """Return the other partitions that an item belonged to while its node had `former` numbers of them, newest first."""
    if ROWS[type(command)].before_growth is None or not getattr(command, "item_id", ""):
        return []
    places = dict.fromkeys(place(command, count) for count in reversed(former))
    return [each for each in places if isinstance(each, int) and each != number]


def _to_former_command(command: AnyCommand) -> AnyCommand:
    """Turn a command into the one for a former partition of its item."""
    turned = ROWS[type(command)].before_growth
    assert turned is not None
    known: AnyCommand = convert(command, turned)
    return known
