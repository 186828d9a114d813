"""lua/lib/order/fair_order.lua: items go out in turns over group keys or publishers (stanzaq#fair)."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest

from tests.lua.driver import Answer, Queue, Runner, commands, unchecked
from tests.lua.keyed_play import KeyedPlay
from tests.lua.worded import W1, W2
from tests.seeds import seeds

NOTHING = {"fair_items", "fair_tenants"}


def fair(queue: Queue, by: str = "key", weights: dict[str, str] | None = None, **options: str | int) -> None:
    """Open a queue with turns."""
    rows = [{"tenant": tenant, "weight": weight} for tenant, weight in (weights or {}).items()]
    queue.open(*rows, fair=by, **options)


def items(answer: Answer) -> list[str]:
    """Return what was handed out."""
    return [item for _jid, item in answer.given]


def publish(queue: Queue, *names: str, hints: str = "", max_items: int = 1_000, node_full: str = "reject") -> None:
    """Publish items whose key is their first letter."""
    for name in names:
        answer = queue.publish(name, key=name[0], hints=hints, max_items=max_items, node_full=node_full)
        assert answer.words == ["ok"]


def test_in_turns(unopened: Queue) -> None:
    """Keys take turns, each in the order of its items; those that come later join the turn; items without a key are one."""
    fair(unopened)
    publish(unopened, "n1", "n2", "n3", "n4", "q1", "q2")
    unopened.publish("none")
    assert items(unopened.subscribe(W1, 3)) == ["none", "n1", "q1"]
    publish(unopened, "r1", "r2")
    assert items(unopened.subscribe(W1, 20)) == ["n2", "q2", "r1", "n3", "r2", "n4"]
    assert not unopened.kept() & (NOTHING | {"ready"})
    # Whoever had its turn just now has no advantage by being gone for a moment.
    unopened.subscribe(W1, 0)
    publish(unopened, "n5", "n6", "a1", "a2")
    assert items(unopened.subscribe(W1, 12)) == ["a1", "n5", "a2"]


def test_publishers(unopened: Queue) -> None:
    """With `publisher` the publishers take turns, whatever the keys."""
    fair(unopened, "publisher")
    unopened.publish("n1", "n2", "n3", by="noisy@x", key="k")
    unopened.publish("q1", "q2", by="quiet@x", key="k")
    assert items(unopened.subscribe(W1, 9)) == ["n1", "q1", "n2", "q2", "n3"]


def test_weights(unopened: Queue) -> None:
    """A key of weight 3 gets three items for each of another; with 0.5 one for two."""
    fair(unopened, weights={"a": "3", "c": "0.5"})
    for key in "abc":
        publish(unopened, *(f"{key}{number}" for number in range(20)))
    given = items(unopened.subscribe(W1, 18))
    assert Counter(item[0] for item in given) == {"a": 12, "b": 4, "c": 2}
    fair(unopened, weights={"a": "1", "c": "2"}, revision=2)
    given = items(unopened.subscribe(W1, 38))
    assert Counter(item[0] for item in given) == pytest.approx({"a": 5, "b": 5, "c": 10}, abs=2)


def test_within_a_key(unopened: Queue) -> None:
    """The more urgent items of a key go first, but not before those of other keys; a returned one has its old place."""
    fair(unopened)
    publish(unopened, "n1", "n2", "n3")
    publish(unopened, "n9", hints="0 9 0")
    publish(unopened, "n0", hints="0 0 0")
    publish(unopened, "q1", "q2")
    assert items(unopened.subscribe(W1, 4)) == ["n9", "q1", "n1", "q2"]
    assert unopened.unlock(W1, "n9", delay_ms=5_000).given == [(W1, "n2")]
    assert items(unopened.unlock(W1, "n1")) == ["n1"]
    publish(unopened, "q3")
    unopened.now += 5_000
    unopened.expire()
    assert items(unopened.subscribe(W1, 20)) == ["n9", "q3", "n3", "n0"]


@pytest.mark.parametrize("way", ["retract", "cancel", "publish", "urgent", "expire", "move", "purge", "full"])
def test_leaving_before_its_turn(unopened: Queue, way: str) -> None:
    """An item that is deleted, cancelled, delayed, expired, moved, purged or dropped leaves nothing behind, nor does its key."""
    fair(unopened)
    unopened.publish("a1", key="a", hints="0 4 1000" if way == "expire" else "")
    if way in {"publish", "urgent"}:
        # The key of the first version counts.
        unopened.publish("a1", key="b", hints="90000 4 0" if way == "publish" else "0 9 0")
    elif way in {"retract", "cancel"}:
        row = {"sender": "alice@x", "owner": "", "item": "a1", "request": ""}
        answer = unopened.run("cancel", row) if way == "cancel" else unopened.retract("alice@x", "a1")
        assert answer.words == ["ok"]
    elif way == "expire":
        unopened.now += 1_000
        unopened.expire()
    elif way == "move":
        position = next(row[5] for row in unopened.page("a1")[0])[2:]
        assert unopened.run("move_items", {"position": position, "item": "a1", "to": "n"}).words == ["ok"]
    elif way == "purge":
        assert unopened.run("purge").rows == [1]
    else:
        unopened.publish("b1", key="b", max_items=1, node_full="retract-oldest")
    found = unopened.client.zrange(unopened.key("fair_tenants"), 0, -1)
    assert found == ([b"b"] if way in {"urgent", "full"} else [])
    assert unopened.client.zcard(unopened.key("fair_items")) == len(found)
    assert items(unopened.subscribe(W1, 9)) == ({"urgent": ["a1"], "full": ["b1"]}.get(way, []))


def test_a_full_node_drops_the_oldest(unopened: Queue) -> None:
    """P17: what is dropped is the oldest item, whatever its key and priority, and not the next in turn."""
    fair(unopened)
    publish(unopened, "n1", hints="0 9 0")
    publish(unopened, "n2", "n3", "a1")
    publish(unopened, "b1", "b2", max_items=4, node_full="retract-oldest")
    assert items(unopened.subscribe(W1, 9)) == ["a1", "b1", "n3", "b2"]


def test_the_option_is_changed(unopened: Queue) -> None:
    """Switched on, it holds for what waits already. Switched off, that goes out in its turns, before later items."""
    unopened.open()
    publish(unopened, "n1", "n2", "n3", "q1")
    fair(unopened, revision=2)
    assert items(unopened.subscribe(W1, 2)) == ["n1", "q1"]
    publish(unopened, "q2")
    unopened.open(revision=3)
    unopened.subscribe(W1, 0)
    publish(unopened, "z1", "z2", "a1")
    assert items(unopened.subscribe(W1, 7)) == ["n2", "q2", "n3", "z1", "z2"]
    assert items(unopened.unlock(W1, "n2")) == ["n2"]
    assert items(unopened.retract(W1, "n2")) == ["a1"]
    assert not unopened.kept() & NOTHING
    assert not unopened.client.hexists(unopened.key("meta"), "fair_at")


def test_from_keys_to_publishers(unopened: Queue) -> None:
    """Items that have a turn by their key keep it; later ones take turns with them by their publishers."""
    fair(unopened)
    publish(unopened, "a1", "a2", "b1")
    fair(unopened, "publisher", revision=2)
    for name in ("c1", "d1"):
        unopened.publish(name, key=name[0], by="me@x")
    assert items(unopened.subscribe(W1, 9)) == ["a1", "b1", "c1", "a2", "d1"]


def test_a_backlog_gets_turns_in_parts(runners: dict[str, Runner]) -> None:
    """Guarantee 6: a long backlog gets its turns over several calls, and meanwhile items go out."""
    queue = unchecked(runners)
    queue.open()
    for first in range(0, 3_000, 200):
        queue.publish(*(f"n{number}" for number in range(first, first + 200)), key="n", max_items=10_000)
    publish(queue, "q1", max_items=10_000)
    fair(queue, revision=2)
    assert len(items(queue.subscribe(W1, 1))) == 1
    calls, more = 0, 1
    while more:
        before, calls = queue.client.zcard(queue.key("fair_items")), calls + 1
        more = queue.expire().more
        assert queue.client.zcard(queue.key("fair_items")) - before <= 1_000
    assert 2 < calls < 20
    assert [*items(queue.retract(W1, "n0")), *items(queue.retract(W1, "n1"))] == ["n1", "q1"]


def test_keys_at_their_bounds(unopened: Queue) -> None:
    """stanzaq#max_in_flight_by_key: a key at its bound delays nobody, and goes on in its turn afterwards."""
    fair(unopened, by_key="1 0 0 0")
    publish(unopened, *(f"n{number}" for number in range(9)), "q1", "q2")
    assert items(unopened.subscribe(W1, 9)) == ["n0", "q1"]
    publish(unopened, "r1")
    assert items(unopened.retract(W1, "n0")) == ["n1"]
    assert items(unopened.retract(W1, "q1")) == ["q2"]


def test_in_order_too(unopened: Queue) -> None:
    """stanzaq#ordered: of each key one item is out at a time, and each in its turn."""
    fair(unopened, ordered="1")
    publish(unopened, "a1", "a2", "a3", "b1", "b2")
    assert items(unopened.subscribe(W1, 9)) == ["a1", "b1"]
    assert items(unopened.retract(W1, "a1")) == ["a2"]
    assert items(unopened.unlock(W1, "b1")) == ["b1"]
    assert items(unopened.retract(W1, "a2")) == ["a3"]
    assert items(unopened.retract(W1, "b1")) == ["b2"]


def test_a_delayed_item_in_order(unopened: Queue) -> None:
    """stanzaq#ordered: a delayed item delays those behind it in its group, and no other key nor those ahead of it."""
    fair(unopened, ordered="1")
    publish(unopened, "a1")
    publish(unopened, "a2", "b1", hints="1000 4 0")
    publish(unopened, "a3", "b2", "c1")
    assert items(unopened.subscribe(W1, 9)) == ["a1", "c1"]
    assert items(unopened.retract(W1, "a1")) == []
    unopened.now += 1_000
    assert sorted(items(unopened.expire())) == ["a2", "b1"]
    assert items(unopened.retract(W1, "a2")) == ["a3"]
    assert items(unopened.retract(W1, "b1")) == ["b2"]
    assert not unopened.kept() & (NOTHING | {"ready", "delayed"})


def test_selectors(unopened: Queue) -> None:
    """Subscribers with selectors get what they select, some at once; nothing is lost when they are gone."""
    fair(unopened)
    publish(unopened, *(f"n{number}" for number in range(60)), "q1", "q2")
    assert "q1" in items(unopened.subscribe(W1, 20, selector="1 = 1"))
    assert items(unopened.subscribe(W2, 9, selector="1 = 2")) == []
    unopened.unsubscribe(W1, release="1")
    unopened.unsubscribe(W2, release="1")
    assert len(items(unopened.subscribe(W1, 99))) == 62
    assert not unopened.kept() & (NOTHING | {"ready", "skipped"})


def test_a_locked_item_is_on_a_page_once(unopened: Queue) -> None:
    """E1: also one of another priority, which is in two indexes."""
    fair(unopened, keep_items=9)
    publish(unopened, "done", "a1")
    publish(unopened, "a9", hints="0 9 0")
    unopened.subscribe(W1, 3)
    unopened.retract(W1, "done")
    assert sorted(row[0] for row in unopened.page()[0]) == ["a1", "a9"]


@pytest.mark.parametrize("backwards", ["", "1"])
def test_pages_show_all(unopened: Queue, backwards: str) -> None:
    """E1: with retention too, pages have each waiting item once, in the order of the log."""
    fair(unopened, keep_items=9)
    publish(unopened, "done", "b1", "c1", "b2", "c2")
    unopened.subscribe(W1, 2)
    unopened.retract(W1, "b1")
    unopened.subscribe(W1, 0)
    seen: list[str] = []
    place: dict[str, str] = {}
    for _ in range(9):
        rows, reached = unopened.page(limit=2, backwards=backwards, **place)[:2]
        seen += [row[0] for row in rows] if not backwards else [row[0] for row in reversed(rows)]
        if not reached:
            break
        place = {"before" if backwards else "after": reached}
    assert seen == (["done", "c1", "b2", "c2"] if not backwards else ["c2", "b2", "c1", "done"])


# Guarantees in counted time: one job a tick.


def waits(queue: Queue, tenants: Sequence[str], each: int, noisy: int) -> float:
    """Publish many items of one noisy tenant, then a few of each quiet one; return the quiet ones' p95 wait in jobs."""
    for first in range(0, noisy, 200):
        queue.publish(*(f"noisy {number}" for number in range(first, first + 200)), key="noisy", max_items=100_000)
    quiet = [f"{tenant} {number}" for number in range(each) for tenant in tenants]
    for item in quiet:
        queue.publish(item, key=item.split(" ")[0], max_items=100_000)
    handed = items(queue.subscribe(W1, 50))
    done = 0
    while not set(quiet) <= set(handed):
        ready, done = handed[done : done + 25], done + 25
        handed += items(queue.run("retract", *(queue.asked(W1, item) for item in ready), together=""))
    places = sorted(handed.index(item) + 1 for item in quiet)
    return places[math.ceil(len(places) * 0.95) - 1]


@pytest.mark.parametrize(("quiet", "each"), [(99, 5), (1, 10)])
def test_a_noisy_key_delays_no_other(runners: dict[str, Runner], quiet: int, each: int) -> None:
    """Issue: beside a noisy key, the p95 wait of the quiet ones is at most twice what it is without; else it is far more."""
    tenants, found = [f"q{number}" for number in range(quiet)], {}
    for noisy, by in ((0, "key"), (2_000, "key"), (2_000, "")):
        queue = unchecked(runners)
        fair(queue, by)
        found[noisy, by] = waits(queue, tenants, each, noisy)
    assert found[2_000, "key"] <= 2 * found[0, "key"]
    assert found[2_000, ""] > 4 * found[0, "key"]


def test_many_keys_cost_no_more(runners: dict[str, Runner]) -> None:
    """A hand-out runs as many commands beside 10,000 keys as beside 100, and each key takes the same memory."""
    found = []
    for count in (100, 10_000):
        queue = unchecked(runners)
        fair(queue)
        for first in range(0, count, 100):
            rows = [
                {
                    "item": "",
                    "by": "alice@x",
                    "body": "x",
                    "key": f"tenant {number}",
                    "once": "",
                    "hints": "",
                    "refused": "",
                }
                for number in range(first, first + 100)
            ]
            queue.run("publish", *rows, max_items=100_000)
        queue.subscribe(W1, 10)
        held = [delivery.item for delivery in queue.run("sweep").deliveries]
        held = held or [row[0] for row in queue.page(limit=100)[0] if row[1] == "locked"]
        memory = sum(queue.client.memory_usage(queue.key(name), samples=0) or 0 for name in NOTHING) / count
        before = commands(queue)
        for item in held:
            assert len(queue.retract(W1, item).given) == 1
        found.append((commands(queue) - before, memory))
    (few, small), (many, large) = found
    assert many <= 1.05 * few
    assert large <= 1.5 * small


WEIGHTS: tuple[dict[str, str], ...] = ({}, {}, {"a": "4"}, {"a": "0.5", "b": "3", "x1@x": "2"})


class Play(KeyedPlay):
    """A node with turns, two workers, two frontends in turn, and what must be true."""

    def __init__(self, runners: dict[str, Runner], chance: random.Random, *, pulls: bool) -> None:
        """Open the node."""
        super().__init__(runners, chance, pulls=pulls)
        self.weights = chance.choice(WEIGHTS)
        self.by, self.revision = chance.choice(("key", "publisher")), 0
        self.switch(self.by)
        self.subscribe_workers(3)
        self.waiting: dict[str, tuple[int, int, int]] = {}
        """When each may go out, its rank and its number."""
        self.order: dict[str, tuple[int, int]] = {}
        """The rank and the number of each."""
        self.served: dict[str, Counter[str]] = defaultdict(Counter)
        """How many turns others have had since a tenant began to wait or had its own."""
        self.gave_back: dict[str, str] = {}
        """Who released each item last: a worker that pulls may leave it to the other (Q30), and then that turn has passed."""

    def switch(self, by: str) -> None:
        """Change the option."""
        self.by, self.revision = by, self.revision + 1
        fair(self.queue, by, self.weights if by else {}, revision=self.revision, max_deliveries=0)

    def tenant(self, item: str) -> str:
        """Return whose item it is."""
        return item[0] if self.by == "key" else f"x{int(item[1:]) % 3}@x"

    def eligible(self) -> dict[str, list[str]]:
        """Return the tenants with the items that may go out, the next one first."""
        found: dict[str, list[str]] = defaultdict(list)
        for item, (due, _rank, _number) in self.waiting.items():
            if due <= self.queue.now:
                found[self.tenant(item)].append(item)
        return {tenant: sorted(theirs, key=lambda item: self.waiting[item][1:]) for tenant, theirs in found.items()}

    def handed(self, given: list[tuple[str, str]]) -> None:
        """Check what a call has handed out."""
        for jid, item in given:
            assert item not in self.held and self.waiting[item][0] <= self.queue.now
            eligible = self.eligible()
            mine = self.tenant(item)
            left = {each for each in self.waiting if self.pulls and self.gave_back.get(each) == jid}
            assert next(each for each in eligible[mine] if each == item or each not in left) == item
            del self.waiting[item]
            self.held[item] = jid
            self.served[mine].clear()
            for other in eligible.keys() - {mine}:
                turns = self.served[other]
                if left.intersection(eligible[other]):
                    turns.clear()
                turns[mine] += 1
                assert turns[mine] <= self.weight(mine) / self.weight(other) + 1, (mine, other)
        self.clear()

    def weight(self, tenant: str) -> float:
        """Return a tenant's weight."""
        return float(self.weights.get(tenant, 1))

    def clear(self) -> None:
        """Forget the turns of others while a tenant has nothing to wait for."""
        for tenant in self.served.keys() - self.eligible().keys():
            del self.served[tenant]

    def publish(self) -> None:
        """Publish some items, most of one key, some delayed or more urgent."""
        for _ in range(self.chance.choice((1, 3, 6))):
            self.count += 1
            item, delay = f"{self.chance.choice('aaaabcd')}{self.count}", self.chance.choice((0, 0, 0, 500))
            priority = self.chance.choice((4, 4, 4, 9, 0))
            self.waiting[item] = (self.queue.now + delay, 9 - priority, self.count)
            by = f"x{self.count % 3}@x"
            hints = f"{delay} {priority} 0" if delay or priority != 4 else ""
            self.order[item] = self.waiting[item][1:]
            self.ran(self.queue.publish(item, key=item[0], by=by, hints=hints))

    def finish(self) -> None:
        """Acknowledge items, or release them."""
        for item in self.chance.sample(sorted(self.held), min(3, len(self.held))):
            if item not in self.held:
                continue
            jid = self.held.pop(item)
            if self.chance.random() < 0.7:
                self.ran(self.queue.retract(jid, item))
                continue
            delay, self.gave_back[item] = self.chance.choice((0, 500)), jid
            self.waiting[item] = (self.queue.now + delay, *self.order[item])
            self.ran(self.queue.unlock(jid, item, delay_ms=delay))

    def delete(self) -> None:
        """Delete a waiting item."""
        for item in self.chance.sample(sorted(self.waiting), min(1, len(self.waiting))):
            del self.waiting[item]
            self.clear()
            self.ran(self.queue.retract("root@x", item, owner="1"))


@pytest.mark.parametrize("pulls", [False, True])
@pytest.mark.parametrize("seed", seeds(2))
def test_by_chance(runners: dict[str, Runner], seed: int, *, pulls: bool) -> None:
    """A tenant's next item is its most urgent and oldest, and others get only their share before it."""
    play = Play(runners, random.Random(seed), pulls=pulls)
    steps = (play.publish, play.publish, play.finish, play.finish, play.finish, play.delete, play.crash)
    for _ in range(100):
        play.at(play.queue.now + play.chance.choice((0, 3, 200, 700)))
        play.chance.choice(steps)()
        play.sweep()
        assert len(play.held) == 6 or not play.eligible()
    while play.waiting or play.held:
        play.at(play.queue.now + 700)
        play.sweep()
        play.finish()
    assert not play.queue.kept() & (NOTHING | {"ready", "delayed"})


def test_switched_by_chance(runners: dict[str, Runner]) -> None:
    """Whenever the option changes, every item goes out once, and nothing is left of the turns in the end."""
    chance = random.Random(7)
    queue, waiting, held = unchecked(runners), set[str](), list[str]()
    queue.open()
    queue.subscribe(W1, 4)
    for step in range(300):
        queue.now += chance.choice((0, 300))
        if step % 12 == 0:
            fair(queue, chance.choice(("", "key", "publisher")), revision=step + 2)
        item = f"{chance.choice('aaabc')}{step}"
        hints = f"{chance.choice((0, 0, 400))} {chance.choice('4490')} 0"
        waiting.add(item)
        answers = [queue.publish(item, key=item[0], by=f"x{step % 2}@x", hints=chance.choice(("", hints)))]
        if held and chance.random() < 0.8:
            gone = held.pop(chance.randrange(len(held)))
            back = chance.random() < 0.3
            waiting |= {gone} if back else set()
            answers.append(queue.unlock(W1, gone) if back else queue.retract(W1, gone))
        for each in (each for answer in answers for each in items(answer)):
            waiting.remove(each)
            held.append(each)
    queue.open(revision=400)
    queue.now += 1_000
    while waiting or held:
        for each in [*items(queue.expire()), *(items(queue.retract(W1, held.pop())) if held else [])]:
            waiting.remove(each)
            held.append(each)
    assert not queue.kept() & (NOTHING | {"ready", "delayed", "by_priority"})
    assert not queue.client.hexists(queue.key("meta"), "fair_at")
