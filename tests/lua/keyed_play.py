"""Items of a few group keys in one or several partitions, two workers and two frontends. The subclass judges what goes out."""

import random
import secrets
from abc import ABC, abstractmethod
from itertools import cycle

from broker.model.names import Partition
from tests.lua.driver import Answer, Queue, Runner
from tests.lua.subscribed import subscribed
from tests.lua.worded import W1, W2


class KeyedPlay(ABC):
    """A node that the subclass opens; the first letter of an item is its key, and `held` has who holds which item."""

    def __init__(self, runners: dict[str, Runner], partitions: int, chance: random.Random) -> None:
        """Begin with nothing; keys of Redis are not compared, since plays are long."""
        runner, life = Runner(runners["valkey"].client, checked=False), secrets.token_hex(4)
        self.chance = chance
        self.parts = [Queue(runner, Partition("jobs", life, number)) for number in range(partitions)]
        self.held: dict[str, str] = {}
        self.count = 0
        self.frontends = cycle(("f1", "f2"))

    def subscribe_workers(self, credit: int) -> None:
        """Subscribe both workers with a credit."""
        for worker in (W1, W2):
            if len(self.parts) > 1:
                subscribed(self.parts, worker, credit)
            else:
                self.parts[0].subscribe(worker, credit)

    @abstractmethod
    def ran(self, queue: Queue, answer: Answer) -> None:
        """Carry credit as frontends do, and check what goes out."""

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
