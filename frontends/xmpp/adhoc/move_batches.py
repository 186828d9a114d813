"""Runs moves of many items at a rate: as many steps of the core as fit before the answer is due. Must not know who asked.

Nothing outlives the answer. The rate holds within it, so continuing at once is no faster than waiting.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from broker.model.commands import MoveItems
from broker.model.core import Core, Reply
from broker.model.names import Jid, bare_jid
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import MovedItems, Result
from broker.tasks import Tasks

SECONDS: Final = 5.0
"""The longest time until the answer; clients give up after thirty seconds at the earliest."""

AT_ONCE: Final = 32
AT_ONCE_OF_ONE: Final = 2
"""The most batches at once, in all and of one bare JID: each keeps Redis as busy as its rate allows."""

_STEPS_A_SECOND: Final = 5
_MOST_A_STEP: Final = 200


class MoveBatches:
    """The running batches."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        """Answer early once `stopping` returns True."""
        self._stopping = stopping
        self._tasks = Tasks()
        self._of: Counter[Jid] = Counter()

    def submit(self, core: Core, rate: int, command: MoveItems, reply: Reply) -> None:
        """Run a batch from its scan position; raises MalformedRequest when too many are running."""
        who = bare_jid(command.sender)
        if len(self._tasks) >= AT_ONCE or self._of[who] >= AT_ONCE_OF_ONE:
            raise MalformedRequest(Problem.TOO_MUCH_HELD, "too many transfers at once: go on with this one later")
        self._of[who] += 1
        self._tasks.answer(self._run_steps(core, rate, command), partial(self._on_end, who, reply))

    def _on_end(self, who: Jid, reply: Reply, outcome: Result) -> None:
        self._of[who] -= 1
        if not self._of[who]:
            del self._of[who]
        reply(outcome)

    async def _run_steps(self, core: Core, rate: int, command: MoveItems) -> Result:
        """Run steps until the end or until the time is up; `scan` is the position to continue from."""
        began, count, passed = time.monotonic(), 0, Counter[str]()
        first, limit = command.scan, max(1, min(_MOST_A_STEP, rate // _STEPS_A_SECOND))
        while True:
            outcome = await core.ask(replace(command, limit=limit))
            if not isinstance(outcome, MovedItems):
                # Report the moved items first; the next batch meets the same refusal, or does not.
                return MovedItems(count, passed, command.scan) if command.scan != first else outcome
            count += outcome.count
            passed.update(outcome.passed)
            command = replace(command, scan=outcome.scan)
            if not outcome.scan:
                return MovedItems(count, passed, "")
            # Wait after a step that was too fast; do not catch up after a slow one.
            await asyncio.sleep(max(0.0, began + count / rate - time.monotonic()))
            if self._stopping() or time.monotonic() - began >= SECONDS:
                return MovedItems(count, passed, command.scan)
