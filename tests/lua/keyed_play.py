"""Items of a few group keys in one partition, two workers and two frontends. The subclass judges what goes out.

The workers are sent their items, or pull them: then each waits, and receives when it is told, or when it has room again.
"""

import random
import secrets
from abc import ABC, abstractmethod
from itertools import cycle

from broker.model.names import Partition
from broker.redis_core.operations.operation import subid
from tests.lua.driver import Answer, Queue, Runner
from tests.lua.worded import W1, W2


class KeyedPlay(ABC):
    """A node that the subclass opens; the first letter of an item is its key, and `held` has who holds which item."""

    def __init__(self, runners: dict[str, Runner], chance: random.Random, *, pulls: bool) -> None:
        """Begin with nothing; keys of Redis are not compared, since plays are long."""
        runner, life = Runner(runners["valkey"].client, checked=False), secrets.token_hex(4)
        self.chance, self.pulls = chance, pulls
        self.credit = 0
        self.comes = {W1, W2} if pulls else set[str]()
        """The workers that are to receive."""
        self.looked = dict.fromkeys((W1, W2), 0)
        """When each last received."""
        self.queue = Queue(runner, Partition("jobs", life))
        self.held: dict[str, str] = {}
        self.count = 0
        self.frontends = cycle(("f1", "f2"))

    def subscribe_workers(self, credit: int) -> None:
        """Subscribe both workers with a credit."""
        self.credit = credit
        for worker in (W1, W2):
            self.queue.subscribe(worker, credit, "pulled" if self.pulls else "unacknowledged")

    @abstractmethod
    def handed(self, given: list[tuple[str, str]]) -> None:
        """Check what has gone out, in this order."""

    def ran(self, answer: Answer) -> None:
        """Check what goes out."""
        self.comes |= {worker for worker in (W1, W2) if ["waiting", "p", subid(worker)] in answer.notices}
        self.handed(answer.given)

    def held_by(self, worker: str) -> set[str]:
        """Return the items that a worker holds."""
        return {item for item, jid in self.held.items() if jid == worker}

    def receive(self) -> None:
        """Let those workers receive that were told, have room again, or have not looked for long."""
        queue = self.queue
        for worker, looked in self.looked.items():
            if looked + 14_000 < queue.now:
                self.comes.add(worker)
        while self.comes:
            worker = self.chance.choice(sorted(self.comes))
            self.comes.remove(worker)
            self.looked[worker] = queue.now
            before = self.held_by(worker)
            answer = queue.run("receive", queue.receiving(worker, process="p"), most=1_000, max_bytes=1_048_576)
            found = [row[0] for row in answer.rows[0][2]]
            assert before <= set(found) and len(found) <= self.credit
            self.handed([(worker, item) for item in found if item not in before])
            if len(found) == self.credit:
                # It does not wait, and receives again when it has ended one.
                self.looked[worker] = 0
            self.ran(answer)

    def at(self, now: int) -> None:
        """Set the clock, and let the other frontend call."""
        self.queue.now, self.queue.frontend = now, next(self.frontends)

    def crash(self) -> None:
        """Let a frontend die: another sends its deliveries again, which count once."""
        again = self.queue.run("take_over", frontend="f3", previous=self.queue.frontend)
        assert {delivery.item for delivery in again.deliveries} <= self.held.keys()

    def sweep(self) -> None:
        """Sweep."""
        self.ran(self.queue.expire())
        if self.pulls:
            self.receive()
