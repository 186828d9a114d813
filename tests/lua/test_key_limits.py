"""lua/lib/limits/key_limits.lua: bounds of each group key (stanzaq#rate_by_key, stanzaq#max_in_flight_by_key)."""

import random
import secrets
from collections import Counter

import pytest

from broker.model.names import Partition
from broker.model.nodes.options import NodeConfig
from tests.contract.model import Bucket, Rate
from tests.lua.driver import T0, Answer, Queue, Runner
from tests.lua.keyed_play import KeyedPlay
from tests.lua.worded import W1, W2
from tests.seeds import seeds

NOTHING = {"key_locks", "key_rates", "key_blocked", "key_due", "group_of", "group_blocked"}


def limited(queue: Queue, rate: str = "", most: int = 0, **options: str | int) -> None:
    """Open a queue with these bounds of each key."""
    queue.open(by_key=NodeConfig(rate_by_key=rate, max_in_flight_by_key=most).limits_by_key, **options)


def items(answer: Answer) -> list[str]:
    """Return what was handed out."""
    return [item for _jid, item in answer.given]


def publish(queue: Queue, *names: str, **more: str) -> list[str]:
    """Publish items whose key is their first letter; return what was handed out."""
    return [item for name in names for item in items(queue.publish(name, key=name[0], **more))]


def test_most_of_a_key(unopened: Queue) -> None:
    """A key at its bound is skipped and the others go on; a lock that ends lets the next of its key go out, in order."""
    limited(unopened, most=2)
    publish(unopened, "a1", "a2", "a3", "a4", "b1")
    unopened.publish("none")
    assert items(unopened.subscribe(W1, 9)) == ["a1", "a2", "b1", "none"]
    assert items(unopened.retract(W1, "a2")) == ["a3"]
    assert items(unopened.retract(W1, "b1")) == []
    unopened.now += 60_000
    # The locks of a1 and a3 expire: they are before a4.
    assert sorted(items(unopened.expire())) == ["a1", "a3", "none"]
    assert unopened.browse() == {"a1": "locked", "a3": "locked", "a4": "waiting", "none": "locked"}


def test_one_is_not_as_strict_as_ordered(unopened: Queue) -> None:
    """With one, a resting or delayed item holds no slot: the next of its key goes out meanwhile."""
    limited(unopened, most=1)
    publish(unopened, "a1", "a2", "a3")
    assert items(unopened.subscribe(W1, 9)) == ["a1"]
    assert items(unopened.unlock(W1, "a1", delay_ms=5_000)) == ["a2"]
    unopened.now += 5_000
    assert items(unopened.expire()) == []
    assert items(unopened.retract(W1, "a2")) == ["a1"]


@pytest.mark.parametrize("way", ["retract", "publish", "expire", "move", "purge"])
def test_the_next_in_turn_leaves(unopened: Queue, way: str) -> None:
    """When the item that may go out next is deleted, delayed, expires, moves or is purged, another of its key follows."""
    limited(unopened, most=1)
    unopened.publish("a1", key="a")
    unopened.subscribe(W1, 1)
    publish(unopened, "b1")
    unopened.publish("a2", key="a", hints="0 4 1000" if way == "expire" else "")
    publish(unopened, "a3")
    assert items(unopened.subscribe(W1, 3)) == ["b1"]
    unopened.subscribe(W1, 0)
    # Nobody has credit: a2 may go out, but stays.
    assert items(unopened.unlock(W1, "a1", delay_ms=90_000)) == []
    if way == "retract":
        unopened.retract("alice@x", "a2")
    elif way == "publish":
        unopened.publish("a2", key="a", hints="90000 4 0")
    elif way == "expire":
        unopened.now += 1_000
        unopened.expire()
    elif way == "move":
        position = next(row[5] for row in unopened.page("a2")[0])[2:]
        unopened.run("move_items", {"position": position, "item": "a2", "to": "n"})
    else:
        unopened.run("purge")
        assert not unopened.kept() & {"key_blocked", "key_due", "group_blocked"}
        publish(unopened, "a3")
    assert items(unopened.subscribe(W1, 3)) == ["a3"]


def test_a_rate_of_each_key(unopened: Queue) -> None:
    """Each key has a rate of its own; the partition is due when the next key's time comes, and nobody polls."""
    limited(unopened, rate="1/s")
    publish(unopened, "a1", "a2", "a3", "a4", "b1")
    answer = unopened.subscribe(W1, 9)
    assert (items(answer), answer.due) == (["a1", "a2", "b1"], T0 + 1_000)
    unopened.now += 1_000
    answer = unopened.expire()
    assert (items(answer), answer.due) == (["a3"], T0 + 2_000)
    unopened.subscribe(W1, 4)
    unopened.now += 1_000
    # There is no credit: it may go out whenever there is.
    assert unopened.expire().due == T0 + 60_000
    assert items(unopened.retract(W1, "b1")) == ["a4"]
    for item in ("a1", "a2", "a3", "a4"):
        unopened.retract(W1, item)
    unopened.now += 10_000
    unopened.expire()
    assert not unopened.kept() & NOTHING


def test_the_clock_steps_back(unopened: Queue) -> None:
    """After a step back a key's rate goes on from the new time: it neither lets more out nor waits for the old time."""
    limited(unopened, rate="1/s")
    publish(unopened, "a1", "a2", "a3", "a4")
    assert items(unopened.subscribe(W1, 9)) == ["a1", "a2"]
    unopened.now -= 3_600_000
    unopened.run("unlock", unopened.given_back(W1, "a1", delay_ms=0))
    answer = unopened.expire()
    assert items(answer) == []
    unopened.now += 1_000
    assert len(items(unopened.expire())) == 1


def test_the_clock_steps_back_while_all_wait(unopened: Queue) -> None:
    """Keys of which nothing comes back or is published wait for one interval of the new time, not for the old time."""
    limited(unopened, rate="1/s")
    publish(unopened, *(f"{key}{number}" for key in "abc" for number in range(4)))
    assert len(items(unopened.subscribe(W1, 99))) == 6
    unopened.now -= 3_600_000
    answer = unopened.expire()
    while answer.due == unopened.now:
        answer = unopened.expire()
        assert items(answer) == []
    assert answer.due == unopened.now + 1_000
    unopened.now += 1_000
    assert items(unopened.expire()) == ["a2", "b2", "c2"]


def test_bounds_are_changed(unopened: Queue) -> None:
    """Higher bounds, or none, let blocked items go out with the next sweep, many keys over several sweeps."""
    limited(unopened, rate="1/h", most=5)
    publish(unopened, *(f"{key}{number}" for key in "abc" for number in range(3)))
    assert items(unopened.subscribe(W1, 20)) == ["a0", "b0", "c0"]
    limited(unopened, rate="2/s", most=2, revision=2)
    # A rate that is used up stays so.
    assert items(unopened.expire()) == []
    unopened.now += 500
    assert sorted(items(unopened.expire())) == ["a1", "b1", "c1"]
    assert unopened.expire().due == T0 + 60_000
    unopened.open(revision=3)
    assert sorted(items(unopened.expire())) == ["a2", "b2", "c2"]
    for name in "abc":
        unopened.retract(W1, f"{name}0")
    limited(unopened, most=2, revision=4)
    assert publish(unopened, "a3") == []
    assert items(unopened.retract(W1, "a1")) == ["a3"]


def test_ordered_too(unopened: Queue) -> None:
    """With order, the head of a group waits for its key's time, and no other passes it."""
    limited(unopened, rate="60/h", ordered="1")
    publish(unopened, "a1", "a2", "b1")
    assert items(unopened.subscribe(W1, 9)) == ["a1", "b1"]
    assert items(unopened.retract(W1, "a1")) == items(unopened.retract(W1, "b1")) == []
    unopened.now += 58_999
    assert items(unopened.expire()) == []
    unopened.now += 1
    answer = unopened.expire()
    assert items(answer) == ["a2"]
    assert items(unopened.unlock(W1, "a2")) == []
    publish(unopened, "a3")
    assert items(unopened.retract("alice@x", "a2")) == []
    unopened.now += 60_000
    assert items(unopened.expire()) == ["a3"]


def test_selected(unopened: Queue) -> None:
    """Subscribers with a selector get the items of a key at its bound later, and others meanwhile."""
    limited(unopened, most=1)
    publish(unopened, "a1", "a2", "b1", "b2")
    assert items(unopened.subscribe(W1, 9, selector="1 = 1")) == ["a1", "b1"]
    assert items(unopened.subscribe(W2, 9, selector="1 = 1")) == []
    assert items(unopened.retract(W1, "b1")) == ["b2"]
    assert items(unopened.retract(W1, "a1")) == ["a2"]


def test_a_full_node_drops_blocked_items(unopened: Queue) -> None:
    """P17: the bounds of a key keep no old item from being dropped, or an owner from purging."""
    limited(unopened, most=1)
    publish(unopened, "a1", "a2")
    unopened.subscribe(W1, 9)
    assert unopened.publish("b1", max_items=2, node_full="retract-oldest").words == ["node-full"]
    assert unopened.publish("c1", key="c", max_items=3).words == ["ok"]
    assert unopened.run("purge").rows == [1]
    assert items(unopened.retract(W1, "a1")) == []


def test_retention_keeps_blocked_items(unopened: Queue) -> None:
    """E1: an item that waits for its key is not done, so no limit of what is kept removes it."""
    limited(unopened, most=1, keep_items=1)
    publish(unopened, "a1", "a2", "b1", "b2", "b3")
    unopened.subscribe(W1, 9)
    for item in ("b1", "b2", "b3"):
        unopened.retract(W1, item)
    assert unopened.browse() == {"a1": "locked", "a2": "waiting"}
    assert items(unopened.retract(W1, "a1")) == ["a2"]


BOUNDS: tuple[tuple[int, Rate | None], ...] = (
    (2, None),
    (1, None),
    (0, Rate(2, 1_000, 2)),
    (1, Rate(2, 1_000, 2)),
    (3, Rate(90, 60_000, 2)),
)


class Play(KeyedPlay):
    """A node with bounds by chance, two workers with credit for everything, two frontends in turn, and what must be true."""

    def __init__(self, runners: dict[str, Runner], chance: random.Random, *, pulls: bool) -> None:
        """Open the node."""
        super().__init__(runners, chance, pulls=pulls)
        self.most, self.rate = chance.choice(BOUNDS)
        bounds: tuple[tuple[int, Rate | None], ...] = (4, None), (6, Rate(3, 1_000)), (0, Rate(200, 60_000, 2))
        self.node_most, node_rate = chance.choice(((0, None), (0, None), *bounds))
        self.node = Bucket(node_rate, T0) if node_rate else None
        limits = f"{self.node_most} {node_rate.rule if node_rate else '0 0 0'}" if self.node_most or node_rate else ""
        self.ordered = chance.choice("001")
        fair = chance.choice(("", "key", "publisher"))
        rule = f"{self.most} {self.rate.rule if self.rate else '0 0 0'}"
        self.queue.open(by_key=rule, ordered=self.ordered, max_deliveries=0, limits=limits, fair=fair)
        self.subscribe_workers(500)
        if chance.random() < 0.4:
            self.queue.subscribe("w3@x/a", 1, selector="1 = 2")
        self.buckets: dict[str, Bucket] = {}
        self.waiting: dict[str, int] = {}

    @property
    def now(self) -> int:
        """The time."""
        return self.queue.now

    def bucket(self, key: str) -> Bucket | None:
        """Return what the rate of a key has left."""
        return self.buckets.setdefault(key, Bucket(self.rate, T0)) if self.rate else None

    def held_of(self, key: str) -> int:
        """Count what workers hold of a key."""
        return Counter(item[0] for item in self.held)[key]

    def handed(self, given: list[tuple[str, str]]) -> None:
        """Check what has gone out."""
        for jid, item in given:
            assert item not in self.held and self.waiting.pop(item) <= self.now
            self.held[item] = jid
            bucket = self.bucket(item[0])
            if bucket:
                assert bucket.fill(self.now) >= 1
                bucket.take(1)
            if self.node:
                assert self.node.fill(self.now) >= 1
                self.node.take(1)
            assert not self.most or self.held_of(item[0]) <= self.most
            assert not self.node_most or len(self.held) <= self.node_most

    def publish(self) -> None:
        """Publish some items, some delayed or more urgent."""
        for _ in range(self.chance.choice((1, 3))):
            self.count += 1
            item, delay = f"{self.chance.choice('aaabcd')}{self.count}", self.chance.choice((0, 0, 0, 500))
            self.waiting[item] = self.now + delay
            hints = f"{delay} {self.chance.choice('4449')} 0"
            self.ran(self.queue.publish(item, key=item[0], hints=hints))

    def finish(self) -> None:
        """Acknowledge an item, or release it."""
        for item in self.chance.sample(sorted(self.held), min(1, len(self.held))):
            jid = self.held.pop(item)
            if self.chance.random() < 0.5:
                self.ran(self.queue.retract(jid, item))
                continue
            delay = self.chance.choice((0, 500))
            self.waiting[item] = self.now + delay
            self.ran(self.queue.unlock(jid, item, delay_ms=delay))

    def delete(self) -> None:
        """Delete a waiting item."""
        for item in self.chance.sample(sorted(self.waiting), min(1, len(self.waiting))):
            del self.waiting[item]
            self.ran(self.queue.retract("alice@x", item))

    def replace(self) -> None:
        """Publish a new version of a waiting item, which is delayed."""
        for item in self.chance.sample(sorted(self.waiting), min(1, len(self.waiting))):
            self.waiting[item] = self.now + 500
            self.ran(self.queue.publish(item, key=item[0], hints="500 4 0"))

    def empty(self) -> None:
        """Delete what waits, and acknowledge what is held."""
        while self.waiting or self.held:
            for item in [*self.waiting]:
                if self.waiting.pop(item, None) is not None:
                    self.ran(self.queue.retract("alice@x", item))
            for item in [*self.held]:
                jid = self.held.pop(item)
                self.ran(self.queue.retract(jid, item))

    def kept_waiting(self) -> set[str]:
        """Return the keys of due items that all bounds would let go out."""
        found: set[str] = set()
        if (self.node_most and len(self.held) >= self.node_most) or (self.node and self.node.fill(self.now) < 1):
            return found
        for key in {item[0] for item, due in self.waiting.items() if due <= self.now}:
            bucket = self.bucket(key)
            full = self.most and self.held_of(key) >= self.most
            if not (full or (bucket and bucket.fill(self.now) < 1)):
                found.add(key)
        return found


@pytest.mark.parametrize("pulls", [False, True])
@pytest.mark.parametrize("seed", seeds(2))
def test_by_chance(runners: dict[str, Runner], seed: int, *, pulls: bool) -> None:
    """After each step of a play with two frontends no key is beyond its bounds, and no item waits that may go out."""
    play = Play(runners, random.Random(seed), pulls=pulls)
    for _ in range(100):
        play.at(play.now + play.chance.choice((0, 3, 200, 700)))
        play.chance.choice(
            (play.publish, play.publish, play.finish, play.finish, play.delete, play.replace, play.crash)
        )()
        play.sweep()
        # In order, an item also waits for those before it.
        assert play.ordered == "1" or not play.kept_waiting()
    play.empty()
    play.queue.now += 600_000
    play.queue.expire()
    assert not play.queue.kept() & NOTHING


def test_many_keys_at_once(runners: dict[str, Runner]) -> None:
    """Guarantee 6: when thousands of blocked items may go out together, a call releases a bounded part, and the next the rest."""
    queue = Queue(Runner(runners["valkey"].client, checked=False), Partition("jobs", secrets.token_hex(4)))
    limited(queue, rate="1/h", most=9)
    for key in range(300):
        queue.publish(*(f"{key}-{number}" for number in range(11)), key=str(key), max_items=10_000)
    queue.subscribe(W1, 1_000)
    for _ in range(40):
        queue.expire()
    assert queue.stats()["in_flight"] == 300
    queue.subscribe(W1, 0)
    queue.open(revision=2)
    moved, more = 0, 1
    while more:
        more, before = queue.expire().more, moved
        moved = queue.client.zcard(queue.key("ready"))
        assert moved - before < 1_000
    queue.subscribe(W1, 1_000)
    for _ in range(30):
        queue.expire()
    assert queue.stats()["in_flight"] == 1_000
