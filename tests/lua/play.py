"""Workers of a queue that come, go and end their locks, by chance. The subclass judges what they are handed."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from broker.selectors.text import read
from broker.selectors.values import Values, selects
from tests.lua.driver import Answer, Queue


@dataclass
class Worker:
    """A subscriber."""

    credit: int
    selector: str = ""
    held: dict[str, int] = field(default_factory=dict)

    def takes(self, color: str) -> bool:
        """Return whether it selects items of a color."""
        return self.selects({"a.color": color})

    def selects(self, item: Values) -> bool:
        """Return whether it selects an item with these values."""
        return not self.selector or selects(read(self.selector), item)


class Play(ABC):
    """A queue and its expected state; `waiting` are the items that nobody holds."""

    waiting: Collection[str]

    def __init__(self, queue: Queue, dice: random.Random, selectors: tuple[str, ...]) -> None:
        """Begin with nobody."""
        self.queue, self.dice, self.selectors = queue, dice, selectors
        self.workers: dict[str, Worker] = {}

    @abstractmethod
    def take(self, answer: Answer) -> None:
        """Apply the deliveries and notices of an answer."""

    @abstractmethod
    def came_back(self, item: str, delay_ms: int = 0) -> None:
        """Return an item to those that wait."""

    @abstractmethod
    def publish(self) -> Answer:
        """Publish a few."""

    @abstractmethod
    def replace(self) -> Answer:
        """Publish a waiting item again."""

    @abstractmethod
    def drop(self) -> Answer:
        """Delete a waiting item."""

    def step(self) -> None:
        """Do one thing by chance."""
        # As much is finished as is published, and the queue is empty now and then.
        acts: list[Callable[[], Answer]] = [self.publish] * 4 + [self.subscribe] * 3 + [self.leave, self.pass_time]
        held = [(jid, item) for jid, worker in self.workers.items() for item in worker.held]
        if held:
            jid, item = self.dice.choice(held)
            acts += [lambda: self.end(jid, item)] * 9
        if self.waiting:
            acts += [self.drop, self.replace]
        self.queue.now += 1
        self.take(self.dice.choice(acts)())

    def subscribe(self) -> Answer:
        """Add a subscriber, or change one."""
        jid = f"w{self.dice.randrange(4)}@x/a"
        held = self.workers[jid].held if jid in self.workers else {}
        worker = Worker(max(self.dice.randint(1, 4), len(held)), self.dice.choice(self.selectors), held)
        self.workers[jid] = worker
        return self.queue.subscribe(jid, worker.credit, selector=worker.selector)

    def leave(self) -> Answer:
        """Remove a subscriber, which gives back its locks."""
        if not self.workers:
            return self.queue.expire()
        jid = self.dice.choice(sorted(self.workers))
        for item in self.workers.pop(jid).held:
            self.came_back(item)
        return self.queue.unsubscribe(jid, release="1")

    def pass_time(self) -> Answer:
        """Let time pass, so that locks and items expire."""
        self.queue.now += self.dice.choice((100, 1_000, 61_000))
        return self.queue.expire()

    def end(self, jid: str, item: str) -> Answer:
        """Acknowledge an item, or release it at once or after a delay."""
        token = self.workers[jid].held.pop(item)
        if self.dice.random() < 0.5:
            return self.queue.retract(jid, item, token)
        delay_ms = self.dice.choice((0, 0, 500))
        self.came_back(item, delay_ms)
        return self.queue.unlock(jid, item, token, delay_ms=delay_ms)
