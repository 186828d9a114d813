"""Items of a few group keys in one or several partitions, two workers and two frontends. The subclass judges what goes out.

The workers are sent their items, or pull them: then each waits, and receives when it is told, or when it has room again.
"""

import random
import secrets
from abc import ABC, abstractmethod
from itertools import cycle

from broker.model.names import Partition
from broker.redis_core.operations.operation import subid
from tests.lua.driver import Answer, Queue, Runner
from tests.lua.subscribed import carried, subscribed
from tests.lua.worded import W1, W2


class KeyedPlay(ABC):
    """A node that the subclass opens; the first letter of an item is its key, and `held` has who holds which item."""

    def __init__(self, runners: dict[str, Runner], partitions: int, chance: random.Random, *, pulls: bool) -> None:
        """Begin with nothing; keys of Redis are not compared, since plays are long."""
        runner, life = Runner(runners["valkey"].client, checked=False), secrets.token_hex(4)
        self.chance, self.pulls = chance, pulls
        self.credit = 0
        self.comes = {W1, W2} if pulls else set[str]()
        """The workers that are to receive."""
        self.looked = dict.fromkeys((W1, W2), 0)
        """When each last received."""
        self.parts = [Queue(runner, Partition("jobs", life, number)) for number in range(partitions)]
        self.held: dict[str, str] = {}
        self.count = 0
        self.frontends = cycle(("f1", "f2"))

    def subscribe_workers(self, credit: int) -> None:
        """Subscribe both workers with a credit."""
        self.credit = credit
        for worker in (W1, W2):
            if len(self.parts) > 1:
                subscribed(self.parts, worker, credit)
            else:
                self.parts[0].subscribe(worker, credit, "pulled" if self.pulls else "unacknowledged")

    @abstractmethod
    def handed(self, queue: Queue, given: list[tuple[str, str]]) -> None:
        """Check what has gone out of a partition, in this order."""

    def ran(self, queue: Queue, answer: Answer) -> None:
        """Carry credit as frontends do, and check what goes out, in the order of each partition."""
        given = carried(self.parts, queue, answer)
        self.comes |= {worker for worker in (W1, W2) if ["waiting", "p", subid(worker)] in answer.notices}
        for part in self.parts:
            self.handed(part, [(jid, item) for jid, item in given if self.home(item) is part])

    def held_by(self, worker: str) -> set[str]:
        """Return the items that a worker holds."""
        return {item for item, jid in self.held.items() if jid == worker}

    def receive(self) -> None:
        """Let those workers receive that were told, have room again, or have not looked for long."""
        (queue,) = self.parts
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
            self.handed(queue, [(worker, item) for item in found if item not in before])
            if len(found) == self.credit:
                # It does not wait, and receives again when it has ended one.
                self.looked[worker] = 0
            self.ran(queue, answer)

    def at(self, now: int) -> None:
        """Set the clock, and let the other frontend call."""
        frontend = next(self.frontends)
        for queue in self.parts:
            queue.now, queue.frontend = now, frontend

    def home(self, item: str) -> Queue:
        """Return the partition of an item's key."""
        return self.parts["abcd".index(item[0]) % len(self.parts)]

    def crash(self) -> None:
        """Let a frontend die: another sends its deliveries again, which count once."""
        for queue in self.parts:
            again = queue.run("take_over", frontend="f3", previous=queue.frontend)
            assert {delivery.item for delivery in again.deliveries} <= self.held.keys()

    def sweep(self) -> None:
        """Sweep all partitions, the first one last: it has what the others want."""
        for queue in reversed(self.parts):
            self.ran(queue, queue.expire())
        if self.pulls:
            self.receive()
