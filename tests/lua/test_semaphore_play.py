"""A collection and the queues below it, played by chance: what is sent is late, lost or out of order, and clocks and queues fail.

Nobody ever holds more than its credit; and when the faults are over, every item is done and all credit is free.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from broker.model.names import Partition
from broker.redis_core.operations.operation import subid
from tests.lua.driver import Answer, Queue, Runner, unchecked
from tests.seeds import seeds

LEASE = "l@x/lease-0"
CREDIT = {"w1@x/a": 1, "w2@x/a": 3, "w3@x/a": 2, LEASE: 2}
LOCK_MS = 20_000
LATE_MS = 2_000
STEPS = 300

Mail = tuple[str, int, Callable[[], None]]
"""What a frontend is about to do: its kind, the queue (-1: the collection), and the call."""


class Play:
    """Three workers and a lease of a collection, and four queues."""

    def __init__(self, runner: Runner, seed: int) -> None:
        """Open all, and subscribe."""
        self.chance, self.turns, self.passed = random.Random(seed), 0, 0
        life = f"life{seed}"
        self.top = Queue(runner, Partition("top", life))
        self.top.open(partitions="0")
        self.leaves = [Queue(runner, Partition(f"q{number}", life)) for number in range(4)]
        for leaf in self.leaves:
            leaf.open(above="1", lock_ms=LOCK_MS, max_deliveries=0)
        self.away: set[int] = set()
        self.mail: list[Mail] = []
        self.published = self.done = 0
        for jid in CREDIT:
            self.subscribe(jid)

    @property
    def queues(self) -> list[Queue]:
        """All partitions."""
        return [self.top, *self.leaves]

    def subscribe(self, jid: str) -> None:
        """Subscribe to the collection."""
        qos = "pulled" if jid == LEASE else "unacknowledged"
        self.handle(-1, self.top.subscribe(jid, CREDIT[jid], qos, scope="items all"))

    # What a frontend does.

    def handle(self, at: int, answer: Answer) -> None:
        """Note what an answer asks for."""
        for kind, *values in answer.notices:
            if kind == "asks":
                self.mail.append(("turn", -1, partial(self.ask, at, *values)))
            elif kind == "freed":
                self.book(values[1])
            elif kind == "turn":
                self.mail.append(("turn", -1, self.turn))

    def book(self, words: str) -> None:
        """Tell the collection of references."""
        if words:
            self.mail.append(("turn", -1, partial(self.turn, words)))

    def ask(self, at: int, wanted: int, stamp: int, hold: int, holders: str) -> None:
        """Ask for subscribers of a queue."""
        self.turn(queue=str(at), asks=wanted, stamp=stamp, hold=hold, holders=holders)

    def turn(self, words: str = "", **more: str | int) -> None:
        """Take a turn, and carry what it lends and asks."""
        self.turns += 1
        answer = self.top.turn(words, named=f"t{self.turns}", **more)  # type: ignore[arg-type]
        lent, looks, again, pulled = answer.rows
        for until, names in pulled:
            fetch = partial(self.fetch, int(more["queue"]), names, until, self.passed)
            self.mail += [("receive", int(more["queue"]), fetch)] if names else []
        for number in sorted({int(row[0]) for row in lent}):
            theirs = [row for row in lent if int(row[0]) == number]
            self.mail.append(("receive", number, partial(self.receive, number, theirs, self.passed)))
        for number, name, deadline, reason in looks:
            self.mail.append(("check", int(number), partial(self.check, int(number), name, deadline, reason)))
        if again:
            self.mail.append(("turn", -1, self.turn))
        self.handle(-1, answer)

    def receive(self, number: int, lent: list[list[Any]], since: int) -> None:
        """Let a queue receive; what one that is away did is unknown. A process that has slept sends nothing."""
        leaf = self.leaves[number]
        if self.passed - since > LATE_MS:
            for row in lent:
                self.book(f"{row[1]} unused")
            return
        if number in self.away:
            return
        for _queue, name, _subid, jid, sending, deadline, _whose in lent:
            answer = leaf.lend(jid, name, sending=sending, deadline=deadline)
            self.book("" if answer.rows == ["locked"] else f"{name} {answer.rows[0]}")
            self.handle(number, answer)

    def fetch(self, number: int, names: str, deadline: int, since: int) -> None:
        """Let the lease receive under references from a queue."""
        if self.passed - since > LATE_MS:
            unused = names
        elif number in self.away:
            return
        else:
            row = self.leaves[number].receiving(LEASE, 9, references=names, deadline=deadline)
            answer = self.leaves[number].run("receive", row, most=200, max_bytes=1_000_000)
            self.handle(number, answer)
            unused = answer.rows[0][-1]
        self.book(" ".join(f"{name} unused" for name in unused.split()))

    def check(self, number: int, name: str, deadline: int, reason: str) -> None:
        """Ask a queue about a reference."""
        if number in self.away:
            self.book(f"{name} silent")
            return
        answer = self.leaves[number].run(
            "check_references", {"reference": name, "deadline": deadline, "reason": reason}
        )
        self.book("" if answer.rows == ["early"] else f"{name} {answer.rows[0]}")
        self.handle(number, answer)

    def sweep(self, at: int) -> None:
        """Sweep a partition."""
        if at not in self.away:
            self.handle(at, (self.top if at < 0 else self.leaves[at]).expire())

    # What happens.

    def publish(self) -> None:
        """Publish a few items."""
        at = self.chance.choice([each for each in range(4) if each not in self.away])
        many = self.chance.randint(1, 3)
        self.handle(at, self.leaves[at].publish(*(f"i{self.published + number}" for number in range(many))))
        self.published += many

    def pull(self) -> None:
        """Let the lease ask for references for a queue."""
        at, wanted = self.chance.randrange(4), self.chance.randint(1, 3)
        stamp = self.leaves[at].now
        ask = partial(self.turn, queue=str(at), asks=wanted, stamp=stamp, hold=LOCK_MS, puller=subid(LEASE))
        self.mail.append(("turn", -1, ask))

    def work(self, share: float = 0.4) -> None:
        """Acknowledge, give back or renew some of what is held."""
        for at, leaf in enumerate(self.leaves):
            for jid in CREDIT if at not in self.away else ():
                for item, token, *_ in leaf.locks(jid):
                    if self.chance.random() > share:
                        continue
                    if share == 1 or self.chance.random() < 0.6:
                        answer = leaf.retract(jid, item, token)
                        self.done += answer.words == ["ok"]
                    elif self.chance.random() < 0.5:
                        answer = leaf.unlock(jid, item, token, delay_ms=0)
                    else:
                        answer = leaf.renew(jid, item, token)
                    self.handle(at, answer)

    def deliver(self) -> None:
        """Do one thing that is to be done, in any order."""
        if self.mail:
            self.mail.pop(self.chance.randrange(len(self.mail)))[2]()

    def lose(self) -> None:
        """Let a frontend die with a thing that it was to do."""
        if self.mail:
            self.mail.pop(self.chance.randrange(len(self.mail)))

    def pass_time(self) -> None:
        """Let time pass, and sweep somewhere."""
        span = self.chance.choice([100, 1_000, 1_000, 5_000])
        self.passed += span
        for each in self.queues:
            each.now += span
        self.sweep(self.chance.randrange(-1, 4))

    def jump(self) -> None:
        """Let a clock jump at a failover; what was on its way there is gone."""
        at, span = self.chance.randrange(-1, 4), self.chance.choice([-10_000, 10_000])
        self.mail = [each for each in self.mail if each[1] != at]
        (self.top if at < 0 else self.leaves[at]).now += span

    def leave(self) -> None:
        """Let a queue's master go away, or come back."""
        at = self.chance.randrange(4)
        self.away = {at} if not self.away else set()

    def resubscribe(self) -> None:
        """Somebody goes, and comes back."""
        jid = self.chance.choice([*CREDIT])
        self.handle(-1, self.top.unsubscribe(jid, release=self.chance.choice(["", "1"])))
        self.subscribe(jid)

    def judge(self) -> None:
        """Nobody holds more than its credit; a lock that is over in a queue that is away is none."""
        for jid, credit in CREDIT.items():
            held = [lock for leaf in self.leaves for lock in leaf.locks(jid) if lock[3] > leaf.now]
            assert len(held) <= credit, (jid, held)

    def acts(self) -> Iterator[Callable[[], None]]:
        """Choose what happens."""
        usual = [self.publish, self.pull, self.work, self.work, *[self.deliver] * 8, self.pass_time, self.pass_time]
        while True:
            yield self.chance.choice([*usual * 3, self.lose, self.lose, self.jump, self.leave, self.resubscribe])

    def finish(self) -> None:
        """End the faults, and let everything be done."""
        self.away.clear()
        for _second in range(150):
            self.passed += 1_000
            for each in self.queues:
                each.now += 1_000
            for at in range(-1, 4):
                self.sweep(at)
            while self.mail:
                self.deliver()
            self.judge()
            self.work(1)
            if self.done == self.published and not self.top.client.exists(self.top.key("lent")):
                return
        pytest.fail(f"{self.done} of {self.published} are done")


@pytest.mark.parametrize("seed", seeds(2))
def test_play(runners: dict[str, Runner], seed: int) -> None:
    """Guarantee 3, H7: whatever is lost or late, credit is never exceeded, nothing is lost, and nothing waits for ever."""
    play = Play(unchecked(runners).runner, seed)
    for act, _step in zip(play.acts(), range(STEPS), strict=False):
        act()
        play.judge()
    play.finish()
    counts = [play.top.client.zcount(play.top.key("locks_by_subscriber"), subid(jid), subid(jid)) for jid in CREDIT]
    assert not any(counts) and play.published > 20
