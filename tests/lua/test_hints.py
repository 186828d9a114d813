"""Delay, priority and time to live of a published item: several scripts together."""

import itertools
import random
from dataclasses import dataclass
from typing import Any

import pytest

from tests.lua.driver import T0, Answer, Queue
from tests.lua.play import Play, Worker
from tests.lua.test_selection import IS_BLUE, IS_RED, packed
from tests.lua.worded import ALICE, W1, W2
from tests.seeds import seeds

USUAL = 4


def asked(delay_ms: int = 0, priority: int = USUAL, ttl_ms: int = 0) -> str:
    """Return hints as a row has them."""
    return f"{delay_ms} {priority} {ttl_ms}"


def names(answer: Answer) -> list[str]:
    """Return the items that were handed out."""
    return [delivery.item for delivery in answer.deliveries]


def test_delay(queue: Queue) -> None:
    """A delayed item is counted as such, reports its due time, and then has the place that it would have had without."""
    queue.subscribe(W1, 1)
    assert queue.publish("a").given == [(W1, "a")]
    assert queue.publish("late", hints=asked(5_000)).due == T0 + 5_000
    queue.publish("b")
    assert queue.browse() == {"a": "locked", "late": "delayed", "b": "waiting"}
    assert {"waiting": 2, "eligible": 1, "delayed": 1}.items() <= queue.stats().items()
    assert names(queue.retract(W1, "a")) == ["b"]
    queue.publish("c")
    queue.now += 4_999
    assert queue.expire().deliveries == [] and names(queue.retract(W1, "b")) == ["c"]
    queue.publish("d")
    queue.now += 1
    late = queue.retract(W1, "c")
    assert names(late) == ["late"], "it is older than d"
    assert late.deliveries[0].ready == str(T0 + 5_000)
    assert names(queue.unlock(W1, "late", delay_ms=100)) == ["d"]
    queue.retract(W1, "d")
    queue.now += 100
    assert [(d.item, d.attempt) for d in queue.expire().deliveries] == [("late", 2)]
    queue.retract(W1, "late")
    assert not {"log", "delayed", "ready", "by_priority", "expirations"} & queue.kept()


def test_no_delay_is_a_way_past_others(queue: Queue) -> None:
    """A short delay gives an item no advantage: where the cursor has not come, it waits in the log."""
    queue.publish("a", "b")
    queue.publish("sly", hints=asked(1))
    queue.publish("c")
    queue.now += 1
    assert queue.expire().due == 0
    assert {"delayed": 0, "eligible": 4}.items() <= queue.stats().items()
    assert names(queue.subscribe(W1, 10)) == ["a", "b", "sly", "c"]
    assert queue.expire().deliveries == []


def test_many_come_due(queue: Queue) -> None:
    """Guarantee 6: of many that become due at once some are moved at a time, and each is handed out once."""
    queue.subscribe(W1, 1)
    queue.publish("first")
    queue.publish(*(f"i{number}" for number in range(450)), hints=asked(10))
    queue.publish("last")
    queue.retract(W1, "first")
    queue.now += 10
    found = names(queue.subscribe(W1, 1_000))
    for _ in range(30):
        answer = queue.expire()
        found += names(answer)
        if not answer.more and not answer.due:
            break
    assert sorted(found) == sorted(f"i{number}" for number in range(450))


@pytest.mark.parametrize("keep", [0, 1_000])
def test_priority(unopened: Queue, keep: int) -> None:
    """Higher goes first, FIFO within; lower than the default goes last; an item that comes back keeps its priority."""
    unopened.open(keep_items=keep)
    for item, priority in (
        ("low", 1),
        ("a", 4),
        ("high", 6),
        ("b", 4),
        ("top", 9),
        ("high2", 6),
        ("low2", 1),
        ("low3", 3),
    ):
        unopened.publish(item, hints=asked(priority=priority) if priority != USUAL else "")
    order = ["top", "high", "high2", "a", "b", "low3", "low", "low2"]
    assert names(unopened.subscribe(W1, 1)) == order[:1]
    assert names(unopened.unlock(W1, "top")) == ["top"], "it comes back to where it was"
    unopened.subscribe(W1, 0)
    unopened.unlock(W1, "top", delay_ms=50)
    assert unopened.stats()["oldest_ms"] == 0 and unopened.browse()["top"] == "delayed"
    assert names(unopened.subscribe(W1, 1)) == ["high"]
    unopened.now += 50
    found = ["high"]
    for expected in ["top", *order[2:]]:
        found += names(unopened.retract(W1, found[-1]))
        assert found[-1] == expected
        if keep:
            # It is finished, though the cursor has not come to it.
            assert set(unopened.browse()) == set(order) - set(found[:-1])
            assert unopened.retract(ALICE, found[-2], owner="1").words == ["item-not-found"]
    unopened.retract(W1, found[-1])
    assert unopened.stats()["waiting"] == 0 and unopened.retained()[0] == (8 if keep else 0)
    assert not {"ready", "by_priority", "delayed"} & unopened.kept()
    assert len(unopened.read()) == (8 if keep else 0)


@pytest.mark.parametrize("passed_over", [0, 1, 2, 3, 4])
def test_what_has_no_room(unopened: Queue, passed_over: int) -> None:
    """PX4: in a full node the oldest of the lowest priority gives way, also where nobody selects the first ones."""
    unopened.open()
    for number, (item, priority) in enumerate((("top", 9), ("a", 4), ("low", 2), ("low2", 2))):
        if number < passed_over:
            unopened.subscribe(W1, 1, selector="color = 'red'")
        else:
            unopened.unsubscribe(W1)
        unopened.publish(item, hints=asked(priority=priority))
    fixed: dict[str, Any] = {"max_items": 4, "node_full": "retract-oldest"}
    gone: list[str] = []
    for number in range(4):
        before = set(unopened.browse())
        assert unopened.publish(f"n{number}", hints=asked(priority=9), **fixed).words == ["ok"]
        gone += before - set(unopened.browse())
    assert gone == ["low", "low2", "a", "top"]


def test_time_to_live(queue: Queue) -> None:
    """An item that waits, is delayed or comes back after its time to live expires; one in flight may be acknowledged."""
    queue.publish("waits", "back", "held", "dead", hints=asked(ttl_ms=1_000))
    assert queue.publish("rests", hints=asked(500, ttl_ms=1_000)).due == T0 + 500
    queue.subscribe(W1, 4)
    assert queue.subscribe(W1, 3).due == T0 + 500
    queue.unlock(W1, "waits", delay_ms=2_000)
    queue.now += 500
    assert queue.expire().due == T0 + 1_000
    queue.now += 500
    answer = queue.expire()
    assert answer.notices == [["perished", 2]] and queue.browse() == dict.fromkeys(("back", "held", "dead"), "locked")
    assert queue.unlock(W1, "back").notices == [["perished", 1]]
    assert queue.letters(queue.unlock(W1, "dead", dead_letter="1"))[0].item == "dead"
    assert queue.retract(W1, "held").words == ["ok"]
    assert [(one["type"], one["item"], one["attempt"]) for one in queue.journal()] == [
        ("released", "waits", 1),
        ("perished", "waits", 2),
        ("perished", "rests", 1),
        ("perished", "back", 2),
        ("released", "back", 1),
        ("dead-lettered", "dead", 1),
        ("acknowledged", "held", 1),
    ]
    lost = queue.journal()[2]
    assert (lost["published"], lost["delivered"], lost["closed"], lost["subscriber"]) == (
        T0,
        T0 + 1_000,
        T0 + 1_000,
        "",
    )
    assert not {"expirations", "by_priority", "ready", "index"} & queue.kept()
    assert queue.client.hlen(queue.key("history")) == 1, "that of the dead letter, until it has arrived"
    assert queue.publish("waits").words == ["ok"], "its id is free"


@pytest.mark.parametrize("hint", [asked(ttl_ms=1_000), asked(1_000)], ids=["perish", "delayed"])
def test_many_at_once(queue: Queue, hint: str) -> None:
    """A9: of items that expire or become due, the next script handles those that one has left."""
    for first in range(0, 500, 100):
        queue.publish(*(f"i{number}" for number in range(first, first + 100)), hints=hint)
    queue.now += 1_000
    assert [queue.expire().more for _ in range(3)] == [1, 1, 0]
    assert not {"expirations", "delayed"} & queue.kept()


def test_nothing_is_handed_out_late(queue: Queue) -> None:
    """No expired item is handed out, not even of more than a script may expire at once, nor before a sweep."""
    queue.publish(*(f"i{number}" for number in range(250)), hints=asked(ttl_ms=1_000))
    queue.publish("good")
    queue.now += 1_000
    answer = queue.subscribe(W1, 1_000)
    assert names(answer) == ["good"] and answer.notices == [["perished", 250]]
    assert queue.stats()["waiting"] == 1 - 1 and not {"expirations"} & queue.kept()


def test_locks_that_expire(queue: Queue) -> None:
    """An item whose lock ends late expires, if its time is over by then; the holder is notified as ever."""
    queue.subscribe(W1, 1)
    queue.publish("a", hints=asked(ttl_ms=30_000))
    queue.now += 30_000
    assert queue.expire().notices == []
    queue.now += 30_000
    assert [notice[0] for notice in queue.expire().notices] == ["unlocked", "perished"]
    assert queue.stats()["waiting"] == 0


def test_replaced(queue: Queue) -> None:
    """X1: a waiting item that is replaced gets the new hints, and with another priority a new place; a worker's delay stays."""
    queue.publish("a", "b", "c")
    queue.publish("a", body="2", hints=asked(1_000, ttl_ms=3_000))
    assert queue.browse() == {"a": "delayed", "b": "waiting", "c": "waiting"}
    queue.publish("a", body="3")
    assert queue.browse()["a"] == "waiting" and not {"delayed", "expirations"} & queue.kept()
    queue.publish("b", body="2", hints=asked(priority=9))
    assert [(d.item, d.body) for d in queue.subscribe(W1, 3).deliveries] == [("b", "2"), ("a", "3"), ("c", "c at 0")]
    queue.unlock(W1, "c", delay_ms=500)
    queue.subscribe(W1, 0)
    queue.unlock(W1, "b")
    queue.publish("c", body="2", hints=asked(ttl_ms=900))
    assert queue.browse()["c"] == "delayed"
    queue.publish("b", body="3", hints=asked(100, 9))
    assert queue.browse()["b"] == "delayed"
    queue.publish("b", body="4", hints=asked(0, 9))
    assert [(d.item, d.body) for d in queue.subscribe(W1, 2).deliveries] == [("b", "4")]
    queue.now += 500
    assert [(d.item, d.body) for d in queue.expire().deliveries] == []
    assert [(d.item, d.body) for d in queue.retract(W1, "a").deliveries] == [("c", "2")]


def test_replaced_in_one_batch(queue: Queue) -> None:
    """X1: an item that comes twice in one batch is what it would be after two batches: one with the later hints."""
    kinds = [asked(), asked(1_000), asked(priority=9), asked(priority=0), asked(1_000, 9, 5_000), asked(ttl_ms=5_000)]

    def row(hints: str, body: str) -> dict[str, str]:
        return {"item": "a", "by": ALICE, "body": body, "hints": hints, "once": "", "key": "", "refused": ""}

    def told(*batches: list[dict[str, str]]) -> tuple[Any, ...]:
        for batch in batches:
            queue.run("publish", *batch)
        state = queue.browse()
        indexes = queue.kept() & {"by_priority", "delayed", "expirations", "replaced", "ready"}
        # A later item tells by its place whether the priority is the later one.
        queue.publish("b", hints=asked(priority=6))
        queue.now += 1_000
        queue.expire()
        given = [(delivery.item, delivery.body[0]) for delivery in queue.subscribe(W1, 2).deliveries]
        queue.subscribe(W1, 0)
        queue.retract(W1, "a")
        queue.retract(W1, "b")
        return state, indexes, given

    for first, second in itertools.product(kinds, repeat=2):
        one, two = row(first, "1"), row(second, "2")
        assert told([one, two]) == told([one], [two]), (first, second)


def test_version_behind_a_lock(queue: Queue) -> None:
    """X1: an item published while its predecessor was locked has its own hints when it becomes an item of its own."""
    for hints, state in ((asked(5_000), "delayed"), (asked(0, 9, 50_000), "waiting"), (asked(ttl_ms=1), "")):
        queue.subscribe(W1, 1)
        queue.publish("a", "b")
        queue.publish("a", body="next", hints=hints)
        queue.now += 1
        assert names(queue.subscribe(W1, 0)) == []
        answer = queue.retract(W1, "a")
        assert queue.browse().get("a", "") == state
        assert bool(answer.notices) == (not state)
        if state == "delayed":
            queue.now += 5_000
        assert names(queue.subscribe(W1, 2)) == (["a", "b"] if state else ["b"])
        queue.retract(W1, "b")
        if state:
            assert queue.unlock(W1, "a").given == [(W1, "a")]
            queue.retract(W1, "a")
        assert not {"log", "ready", "by_priority", "expirations", "delayed"} & queue.kept()


def test_order_of_groups(unopened: Queue) -> None:
    """Where groups are ordered, that goes before priority, and a delayed item delays those behind it in its group."""
    unopened.open(ordered="1")
    unopened.publish("a1", key="a")
    unopened.publish("b1", key="b", hints=asked(1_000))
    unopened.publish("a2", key="a", hints=asked(priority=9))
    unopened.publish("b2", key="b")
    unopened.publish("free", hints=asked(priority=9))
    unopened.publish("a3", key="a", hints=asked(ttl_ms=10))
    unopened.publish("a4", key="a", hints=asked(2_000))
    assert names(unopened.subscribe(W1, 9)) == ["free", "a1"]
    unopened.now += 1_000
    assert names(unopened.expire()) == ["b1"]
    assert names(unopened.retract(W1, "a1")) == ["a2"] and names(unopened.retract(W1, "b1")) == ["b2"]
    assert unopened.retract(W1, "a2").deliveries == [], "a3 has perished, a4 rests"
    assert {"delayed": 1, "waiting": 1, "eligible": 0}.items() <= unopened.stats().items()
    unopened.now += 1_000
    assert names(unopened.expire()) == ["a4"]


def test_deleted_sent_elsewhere_and_purged(queue: Queue) -> None:
    """P3, P25: an item leaves no index entry, whatever way it goes."""
    all_of = asked(60_000, 9, 70_000)
    queue.publish("deleted", "sent", "purged", "other", hints=all_of)
    queue.publish("p", hints=asked(0, 8, 70_000))
    queue.publish("low", "low2", hints=asked(0, 0, 70_000))
    assert queue.retract(ALICE, "deleted").words == ["ok"]
    positions = {row[1]: row[0] for row in queue.run("inspect_items").rows[1]}
    sent = [{"position": positions[item], "item": item, "to": "there"} for item in ("sent", "p", "low")]
    answer = queue.run("move_items", *sent)
    letters = queue.letters(answer)
    assert answer.words == ["ok", "ok", "ok"] and {one.item for one in letters} == {"sent", "p", "low"}
    assert queue.end(*(letter.entry for letter in letters)).words == ["ok"] * 3
    assert queue.run("purge").rows == [3]
    assert not {"log", "index", "ready", "delayed", "by_priority", "expirations"} & queue.kept()


def test_a_page_of_what_is_kept(unopened: Queue) -> None:
    """Each item is on a page once, wherever it is, and no entry of a finished one."""
    unopened.open(keep_items=100)
    unopened.publish("done")
    unopened.subscribe(W1, 1)
    unopened.retract(W1, "done")
    unopened.subscribe(W1, 0)
    unopened.publish("a", "b")
    unopened.publish("late", hints=asked(9_000))
    unopened.publish("top", "held", hints=asked(priority=9))
    unopened.subscribe(W2, 2)
    unopened.retract(W2, "top")
    unopened.subscribe(W2, 0)
    states = {"a": "locked", "b": "waiting", "late": "delayed", "held": "locked"}
    assert unopened.browse() == states and unopened.page()[0][0][0] == "a"
    assert len(unopened.page()[0]) == len(states)
    assert unopened.browse(limit=3, backwards="1") == {name: states[name] for name in ("late", "held")}


@dataclass
class Asked:
    """An item of the play: its rank, from when on and until when it may go out, and how old it is."""

    rank: int
    after: int
    ends: int
    age: int
    color: str
    worker_delay: bool = False


class Urgencies(Play):
    """A queue of items with hints, and their expected order."""

    def __init__(self, queue: Queue, dice: random.Random, selectors: tuple[str, ...]) -> None:
        """Begin with nobody."""
        super().__init__(queue, dice, selectors)
        self.items: dict[str, Asked] = {}
        self.waiting: set[str] = set()
        self.tried: set[str] = set()
        self.count = self.perished = self.reported = 0

    def take(self, answer: Answer) -> None:
        """Apply the deliveries and notices of an answer."""
        for _ in range(300):
            for notice in answer.notices:
                if notice[0] == "unlocked":
                    del self.workers[notice[1]].held[notice[2]]
                    self.came_back(notice[2])
                elif notice[0] == "perished":
                    self.reported += notice[1]
            self.sweep()
            for delivery in answer.deliveries:
                self.handed(delivery.jid, delivery.item, delivery.token)
            if not answer.more:
                break
            answer = self.queue.expire()
        assert not answer.more, "there is always more"
        assert self.reported == self.perished
        ready = [item for item in self.waiting if self.items[item].after <= self.queue.now]
        for jid, worker in self.workers.items():
            if len(worker.held) < worker.credit:
                assert not [one for one in ready if worker.takes(self.items[one].color)], f"{jid} could have more"
        states = self.queue.browse(limit=1_000)
        assert {item for item, state in states.items() if state != "locked"} == self.waiting
        resting = {item for item in self.waiting if self.items[item].after > self.queue.now}
        assert {item for item, state in states.items() if state == "delayed"} == resting
        assert self.queue.stats()["delayed"] == len(resting)
        moments = [self.items[item].after for item in resting]
        moments += [self.items[item].ends for item in self.waiting if self.items[item].ends]
        assert not moments or 0 < answer.due <= min(moments), "whoever is to visit knows when"

    def sweep(self) -> None:
        """Let items expire."""
        for item in [item for item in self.waiting if 0 < self.items[item].ends <= self.queue.now]:
            self.waiting.remove(item)
            self.perished += 1

    def handed(self, jid: str, item: str, token: int) -> None:
        """Check a delivery against the rules."""
        worker, asked_for = self.workers[jid], self.items[item]
        assert item in self.waiting, f"{item} does not wait"
        assert asked_for.after <= self.queue.now
        assert worker.takes(asked_for.color) and len(worker.held) < worker.credit
        others = [
            self.items[one]
            for one in self.waiting
            if self.items[one].after <= self.queue.now and worker.takes(self.items[one].color) and one not in self.tried
        ]
        before = [one for one in others if one.rank < asked_for.rank]
        # An item that came back avoids its last holder: another may get it out of turn.
        assert not before or (item in self.tried and any(self.selectors)), f"{before} goes before {asked_for}"
        if item not in self.tried:
            older = [one for one in others if (one.rank, one.age) < (asked_for.rank, asked_for.age)]
            assert not older, f"{older} goes before {asked_for}"
        self.waiting.remove(item)
        worker.held[item] = token

    def came_back(self, item: str, delay_ms: int = 0) -> None:
        """Return an item to those that wait."""
        self.waiting.add(item)
        self.tried.add(item)
        self.items[item].after = self.queue.now + delay_ms if delay_ms else 0
        self.items[item].worker_delay = delay_ms > 0

    def hints(self) -> tuple[int, int, int]:
        """Choose hints, mostly none."""
        delay = self.dice.choice((0, 0, 0, 1, 200, 3_000))
        ttl = self.dice.choice((0, 0, 0, delay + 1, delay + 500, 70_000))
        return delay, self.dice.choice((USUAL, USUAL, USUAL, 9, 6, 1)), ttl

    def published(self, item: str, hints: tuple[int, int, int], color: str) -> None:
        """Record an item as it is now."""
        delay, priority, ttl = hints
        self.count += 1
        now = self.queue.now
        self.items[item] = Asked(9 - priority, now + delay if delay else 0, now + ttl if ttl else 0, self.count, color)
        self.waiting.add(item)

    def publish(self) -> Answer:
        """Publish a few."""
        hints, color = self.hints(), self.dice.choice(("red", "blue", "green"))
        names = [f"i{self.count + number}" for number in range(self.dice.randint(1, 4))]
        for name in names:
            self.published(name, hints, color)
        return self.queue.publish(*names, body=packed(color=color), hints=asked(*hints))

    def replace(self) -> Answer:
        """Publish a waiting item again."""
        item = self.dice.choice(sorted(self.waiting))
        before, hints, color = self.items[item], self.hints(), self.dice.choice(("red", "blue"))
        stays = before.worker_delay and before.after > self.queue.now and 9 - hints[1] == before.rank and not hints[0]
        self.published(item, hints, color)
        after = self.items[item]
        if after.rank == before.rank:
            after.age = before.age
        if stays:
            after.after, after.worker_delay = before.after, True
        self.tried.add(item)
        return self.queue.publish(item, body=packed(color=color), hints=asked(*hints))

    def drop(self) -> Answer:
        """Delete a waiting item."""
        item = self.dice.choice(sorted(self.waiting))
        self.waiting.remove(item)
        return self.queue.retract(ALICE, item, owner="1")


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("kind", ["plain", "kept", "selecting"])
@pytest.mark.parametrize("runner", ["valkey"], indirect=True)
def test_play(unopened: Queue, kind: str, seed: int) -> None:
    """Nothing before its time nor after its expiry, the more urgent first, each once, nothing lost.

    In the end nothing is left.
    """
    unopened.open(max_deliveries=0, keep_items=1_000 if kind == "kept" else 0)
    play = Urgencies(unopened, random.Random(seed), ("", IS_RED, IS_BLUE) if kind == "selecting" else ("",))
    for _ in range(150):
        play.step()
    unopened.now += 100_000
    play.take(unopened.expire())
    play.workers["end@x/a"] = Worker(1_000)
    play.take(unopened.subscribe("end@x/a", 1_000))
    assert not play.waiting and play.perished > 0
    for jid, worker in play.workers.items():
        for item, token in worker.held.items():
            unopened.retract(jid, item, token)
    assert (
        not {"ready", "delayed", "by_priority", "expirations", "inflight", "replaced", "index", "skipped"}
        & unopened.kept()
    )
    assert unopened.stats()["waiting"] == 0
