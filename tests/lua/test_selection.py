"""Selectors in a partition: who gets what, which items are skipped, and that Redis evaluates as Python does."""

import random
import time
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker import codec, payloads
from broker.model.items.items import Envelope
from broker.model.names import Partition
from broker.redis_core.operations.operation import subid
from broker.redis_core.operations.subscriptions import encode_selector
from broker.scripts.packaging import write_script
from broker.scripts.source import examine
from broker.selectors.program import program
from broker.selectors.tree import Predicate, write_tree
from broker.selectors.values import Value, selects
from tests.chosen import trees, values
from tests.lua.driver import FOLDER, Answer, Delivered, Queue, Runner
from tests.lua.play import Play, Worker
from tests.seeds import seeds

RED, BLUE, ANY = "red@x/a", "blue@x/a", "any@x/a"
IS_RED, IS_BLUE = "color = 'red'", "color = 'blue'"
SELECTORS = ("", IS_RED, IS_BLUE, "color IN ('red', 'green')", "color > 'c'", "color IS NULL")


def packed(**headers: str) -> bytes:
    """Pack a payload with these headers."""
    return codec.pack(Envelope(b"<x/>", headers=headers))


def publish(queue: Queue, color: str, *items: str, **more: Any) -> list[tuple[str, str]]:  # noqa: ANN401  (the driver's)
    """Publish items of a color; return who was handed what, when all possible is handed out."""
    answer = queue.publish(*items, body=packed(color=color), **more)
    return answer.given + rest(queue, answer)


def rest(queue: Queue, answer: Answer) -> list[tuple[str, str]]:
    """Sweep as long as a script says that there is more."""
    given: list[tuple[str, str]] = []
    for _ in range(200):
        if not answer.more:
            return given
        answer = queue.expire()
        given += answer.given
    pytest.fail("there is always more")


_JUDGE = write_script(
    FOLDER,
    examine(
        FOLDER,
        "judge",
        """#!lua
-- Judge texts and payloads.
-- ARGV: number | program body
-- RETURNS: ok
local found = {}
for _, row in ipairs(rows) do
  local entry = {body = row.body, position = '1-0', item = 'i', by = 'b@x', key = '', past = {attempts = 0}}
  found[#found + 1] = selectors.selects({program = row.program}, entry) and 1 or 0
end
return found
""",
    ),
).text


ASKED = st.lists(st.tuples(trees(), values()), min_size=20, max_size=40)


@pytest.mark.parametrize("server", ["valkey", "redis7"])
@given(ASKED)
@settings(max_examples=20, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_says_what_python_says(
    runners: dict[str, Runner], server: str, asked: list[tuple[Predicate, dict[str, Value]]]
) -> None:
    """Issue 9: the evaluators in Redis and for streams agree on any expression and headers."""
    _agree(runners[server], asked)


@pytest.mark.soak
@pytest.mark.parametrize("server", ["valkey", "redis7"])
@given(ASKED)
@settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck))
def test_says_what_python_says_for_long(
    runners: dict[str, Runner], server: str, asked: list[tuple[Predicate, dict[str, Value]]]
) -> None:
    """The same for a thousand lists of expressions."""
    _agree(runners[server], asked)


def _agree(runner: Runner, asked: list[tuple[Predicate, dict[str, Value]]]) -> None:
    sent: list[str | bytes] = []
    for tree, item in asked:
        headers = {name[2:]: value for name, value in item.items() if isinstance(value, str)}
        sent += [program(tree), codec.pack(Envelope(b"\xc4" * 300, "text/plain", headers))]
    found = runner.client.eval(_JUDGE, 0, "0", *sent)
    wanted = [{**item, "h.n": None, "h.o": None} for _tree, item in asked]
    assert found == [int(selects(tree, item)) for (tree, _item), item in zip(asked, wanted, strict=True)]


def test_passes_over(queue: Queue) -> None:
    """Issue 9: an item that nobody present selects waits and does not block later ones; order holds for each."""
    queue.subscribe(RED, 10, selector=IS_RED)
    queue.subscribe(BLUE, 1, selector=IS_BLUE)
    assert publish(queue, "green", "g1", "g2") == []
    assert publish(queue, "red", "r1", "r2") == [(RED, "r1"), (RED, "r2")]
    assert publish(queue, "blue", "b1", "b2", "b3") == [(BLUE, "b1")]
    assert publish(queue, "red", "r3") == [(RED, "r3")]
    assert queue.stats()["waiting"] == 4 and queue.stats()["eligible"] == 4
    assert queue.browse()["g1"] == "waiting" and list(queue.browse()) == [
        "g1",
        "g2",
        "r1",
        "r2",
        "b1",
        "b2",
        "b3",
        "r3",
    ]
    assert queue.retract(BLUE, "b1").given == [(BLUE, "b2")]
    assert queue.subscribe(ANY, 2).given == [(ANY, "g1"), (ANY, "g2")]
    assert queue.retract(ANY, "g1").given == [(ANY, "b3")]


def test_new_and_changed_selectors(queue: Queue) -> None:
    """A new selector, a changed one and none find skipped items at once; the selector is returned as requested."""
    queue.subscribe(RED, 10, selector=IS_RED)
    publish(queue, "blue", "b1")
    publish(queue, "green", "g1", "g2")
    assert queue.subscribe(BLUE, 5, selector=IS_BLUE).given == [(BLUE, "b1")]
    answer = queue.subscribe(BLUE, 1, selector="color IN ('blue', 'green')")
    assert answer.given == [] and answer.rows[0][6:] == ["", encode_selector("color IN ('blue', 'green')")]
    assert queue.subscribe(BLUE, 2, must="1", selector="=").given == [(BLUE, "g1")]
    assert queue.run("get_subscription", {"subid": subid(BLUE), "named": ""}).rows[0][5:] == [
        "",
        encode_selector("color IN ('blue', 'green')"),
    ]
    assert queue.subscribe(RED, 10, selector="").given == [(RED, "g2")]
    assert queue.run("get_subscription", {"subid": subid(RED), "named": ""}).rows[0][5:] == []
    assert queue.unsubscribe(BLUE).words == ["ok"]
    assert "selectors" not in queue.kept()
    publish(queue, "red", "r1")
    assert "skipped" not in queue.kept() and queue.client.hget(queue.key("meta"), "selects") is None


def test_came_back(queue: Queue) -> None:
    """Q30, Q24: an item that comes back keeps its place.

    Another subscriber that selects it is preferred, and no one else gets it.
    """
    queue.subscribe(RED, 1, selector=IS_RED)
    queue.subscribe(BLUE, 9, selector=IS_BLUE)
    publish(queue, "red", "r1", "r2", "r3")
    answer = queue.unlock(RED, "r1", delay_ms=1000)
    assert answer.given + rest(queue, answer) == [(RED, "r2")]
    queue.now += 1000
    assert queue.expire().given == [], "its time has come, but its subscriber has no credit"
    assert queue.retract(RED, "r2").given == [(RED, "r1")], "and now it comes before what was behind it"
    assert queue.unlock(RED, "r1").given == [(RED, "r1")], "nobody else selects it"
    queue.subscribe("red@x/b", 1, selector="color LIKE 'r%' AND h.delivery-count > 0")
    assert queue.unlock(RED, "r1").given == [("red@x/b", "r1"), (RED, "r3")]


def test_delivery_count_and_properties(queue: Queue) -> None:
    """A selector can use the item's id, publisher, group key, type, times, number of tries, and its headers."""
    selector = (
        "h.delivery-count = 0 AND p.message-id = 'one' AND p.user-id = 'alice@x' AND p.group-id = 'k' "
        "AND p.content-type = 'application/xml' AND p.creation-time > 1600000000000 AND a.color = 'red' AND m.x IS NULL"
    )
    queue.subscribe(RED, 1, selector=selector)
    assert publish(queue, "red", "one", key="k") == [(RED, "one")]
    answer = queue.unlock(RED, "one")
    assert answer.given + rest(queue, answer) == []
    assert publish(queue, "red", "two", key="k") == []


def test_content_type(queue: Queue) -> None:
    """Issue 10: a type is what its publisher gave, also of XML that is kept apart from elements."""
    queue.subscribe(RED, 10, selector="p.content-type IN ('application/xml', 'text/xml')")
    for item, kind in (("a", "application/xml"), ("b", "text/xml"), ("c", "application/xml; charset=utf-8")):
        answer = queue.publish(item, body=codec.pack(payloads.make_envelope(b"<a/>", kind, {})))
        assert answer.given + rest(queue, answer) == ([(RED, item)] if item != "c" else [])


def test_many_headers(queue: Queue) -> None:
    """Issue 18 B: an item with more headers than the index asks for is examined for every selector."""
    queue.subscribe(RED, 10, selector=IS_RED)
    headers = {f"h{number}": f"{number}" for number in range(10_000)}
    answer = queue.publish("a", "b", body=packed(**headers, color="red"))
    assert sorted(answer.given + rest(queue, answer)) == [(RED, "a"), (RED, "b")]
    answer = queue.publish("c", "d", body=packed(**headers))
    assert answer.given + rest(queue, answer) == []


def test_another_payload(queue: Queue) -> None:
    """X1: a skipped item with another payload is selected by that."""
    queue.subscribe(RED, 10, selector=IS_RED)
    publish(queue, "blue", "x", "y")
    assert publish(queue, "red", "x") == [(RED, "x")]
    assert publish(queue, "green", "y") == [] and queue.browse("y") == {"y": "waiting"}


def test_leaves_the_waiting(queue: Queue) -> None:
    """P25, P17, Q21: skipped items are retracted, purged, moved, and dropped for room, as all waiting ones."""
    queue.subscribe(RED, 10, selector=IS_RED)
    publish(queue, "blue", "a", "b", "c", "d")
    assert queue.retract("alice@x", "a", owner="1").words == ["ok"]
    assert publish(queue, "blue", "e", max_items=3, node_full="drop-oldest") == []
    assert list(queue.browse()) == ["c", "d", "e"]
    position = queue.run("inspect_items", {"item": "c"}).rows[1][0][0]
    assert queue.run("move_items", {"position": position, "item": "c", "to": "other"}).words == ["ok"]
    assert queue.browse() == {"c": "dying", "d": "waiting", "e": "waiting"}
    assert queue.run("purge").rows == [2]
    assert queue.subscribe(BLUE, 10, selector=IS_BLUE).given == []
    assert queue.client.exists(queue.key("skipped")) == 0


def test_in_groups(unopened: Queue) -> None:
    """E24: order within a group goes before selection: an item that nobody selects blocks only its own group."""
    unopened.open(ordered="1")
    unopened.subscribe(RED, 10, selector=IS_RED)
    publish(unopened, "blue", "a1", key="a")
    assert publish(unopened, "red", "a2", key="a") == []
    assert publish(unopened, "red", "b1", key="b") == [(RED, "b1")]
    answer = unopened.retract("alice@x", "a1", owner="1")
    assert answer.given + rest(unopened, answer) == [(RED, "a2")]


def test_kept_when_done(unopened: Queue) -> None:
    """Retention: a skipped item is not finished, and stays like other waiting items."""
    unopened.open(keep_items=1)
    unopened.subscribe(RED, 10, selector=IS_RED)
    publish(unopened, "blue", "b1")
    publish(unopened, "red", "r1", "r2")
    for item in ("r1", "r2"):
        unopened.retract(RED, item)
    assert unopened.browse() == {"b1": "waiting"} and unopened.retained()[0] == 1
    assert unopened.subscribe(BLUE, 1, selector=IS_BLUE).given == [(BLUE, "b1")]


def test_owner_takes_all(queue: Queue) -> None:
    """E28: the owner of the partition gets every item; selectors are for shared subscriptions."""
    queue.subscribe(RED, 10, selector=IS_RED)
    publish(queue, "blue", "b1")
    assert queue.attach(RED, credit=5).given == [(RED, "b1")]
    assert queue.subscribe(RED, 5, must="1", selector=IS_RED).rows == [["options-invalid", "selector"]]


def test_refusals(queue: Queue) -> None:
    """A stream reads its whole log, and the number of selectors is bounded."""
    queue.follow(BLUE, 10)
    assert queue.subscribe(BLUE, 10, must="1", qos="", selector=IS_RED).rows == [["options-invalid", "selector"]]
    for number in range(100):
        assert queue.subscribe(f"w{number}@x/a", 1, selector=IS_RED).words == ["ok"]
    assert queue.subscribe(RED, 1, selector=IS_RED).rows == [["too-many-subscriptions", "selector"]]
    assert queue.subscribe("w7@x/a", 1, selector=IS_BLUE).words == ["ok"]
    assert queue.subscribe(RED, 1).words == ["ok"]


@pytest.mark.parametrize("runner", ["valkey"], indirect=True)
def test_work_is_bounded(queue: Queue) -> None:
    """One script examines a bounded number of items; nothing is examined twice; without a selector there is no cost."""
    for number in range(20):
        queue.subscribe(f"w{number}@x/a", 10, selector="color LIKE 'never'")
    for _ in range(10):
        queue.publish(*[""] * 200, body=packed(color="blue"), max_items=10_000, frontend="")
    visits, answer = 0, queue.expire()
    while answer.more:
        visits, answer = visits + 1, queue.expire()
    # Two thousand items examined for twenty subscribers: more than one script, and fewer than one each.
    assert 10 < visits < 150
    commands = queue.client.info("commandstats")["cmdstat_xrange"]["calls"]
    assert queue.publish("", body=packed(color="blue")).more == 0
    assert queue.client.info("commandstats")["cmdstat_xrange"]["calls"] - commands < 10
    assert queue.subscribe(BLUE, 1, selector="color = 'blue'").given != []


def test_reading_is_work(queue: Queue) -> None:
    """Issue 9: selectors are parsed when needed, which counts as work; equal ones are parsed once."""
    colors = ", ".join(f"'never{number}'" for number in range(58))
    for number in range(100):
        queue.subscribe(f"w{number}@x/a", 1, selector=f"NOT (color NOT IN ({colors}, '{number % 2}'))")
    assert publish(queue, "blue", "a") == [] and queue.expire().more == 0
    assert queue.publish("b", body=packed(color="blue")).more == 0
    for number in range(100):
        queue.subscribe(f"w{number}@x/a", 1, selector=f"NOT (color NOT IN ({colors}, '{number}'))")
    answer = queue.publish("c", body=packed(color="blue"))
    assert answer.more == 1 and rest(queue, answer) == []
    assert publish(queue, "99", "d") == [("w99@x/a", "d")]


def test_bomb(queue: Queue) -> None:
    """Slow selectors are evaluated in parts: no script takes long."""
    form = "%a" * 60 + "b"
    queue.subscribe(RED, 10, selector=" OR ".join(f"color LIKE '{form}'" for _ in range(7)))
    for _ in range(3):
        queue.publish(*[""] * 20, body=packed(color="a" * 1000), frontend="")
    answer, slowest = queue.expire(), 0.0
    while answer.more:
        began = time.monotonic()
        answer = queue.expire()
        slowest = max(slowest, time.monotonic() - began)
    assert slowest < 10
    assert answer.given == []


class Headers(Play):
    """A queue of items with headers, and the expected matches."""

    def __init__(
        self, queue: Queue, dice: random.Random, selectors: tuple[str, ...], headers: Sequence[dict[str, str]]
    ) -> None:
        """Begin with nobody; items have some of these headers."""
        super().__init__(queue, dice, selectors)
        self.choices = headers
        self.waiting: dict[str, str] = {}
        self.delayed: dict[str, int] = {}
        self.tried: set[str] = set()
        self.headers: dict[str, dict[str, str]] = {}

    def takes(self, worker: Worker, item: str) -> bool:
        """Return whether somebody selects an item."""
        return worker.selects({f"a.{name}": value for name, value in self.headers[item].items()})

    def take(self, answer: Answer) -> None:
        """Apply the deliveries and notices of an answer."""
        for _ in range(300):
            for notice in answer.notices:
                if notice[0] == "unlocked" and self.workers[notice[1]].held.pop(notice[2], None):
                    self.came_back(notice[2])
            for delivery in answer.deliveries:
                self.handed(delivery)
            if not answer.more:
                break
            answer = self.queue.expire()
        assert not answer.more, "there is always more"
        ready = [item for item in self.waiting if self.delayed.get(item, 0) <= self.queue.now]
        for jid, worker in self.workers.items():
            if len(worker.held) < worker.credit:
                assert not [item for item in ready if self.takes(worker, item)], f"{jid} could have more"

    def handed(self, delivery: Delivered) -> None:
        """Check a delivery against the rules."""
        item, worker = delivery.item, self.workers[delivery.jid]
        assert self.delayed.pop(item, 0) <= self.queue.now
        assert item in self.waiting, f"{item} does not wait"
        assert self.takes(worker, item), f"{delivery.jid} does not select {self.headers[item]}"
        assert len(worker.held) < worker.credit
        older = [each for each in self.waiting if each not in self.tried]
        mine = [each for each in older if self.takes(worker, each)]
        assert item in self.tried or mine[0] == item, "an older one waits"
        del self.waiting[item]
        worker.held[item] = delivery.token

    def came_back(self, item: str, delay_ms: int = 0) -> None:
        """Return an item to those that wait."""
        self.waiting[item] = ""
        self.tried.add(item)
        self.delayed[item] = self.queue.now + delay_ms

    def publish(self) -> Answer:
        """Publish a few."""
        headers = self.dice.choice(self.choices)
        names = [f"i{len(self.headers) + number}" for number in range(self.dice.randint(1, 5))]
        self.headers |= dict.fromkeys(names, headers)
        self.waiting |= dict.fromkeys(names, "")
        return self.queue.publish(*names, body=packed(**headers))

    def drop(self) -> Answer:
        """Delete a waiting item."""
        item = self.dice.choice(list(self.waiting))
        del self.waiting[item]
        self.delayed.pop(item, None)
        return self.queue.retract("alice@x", item, owner="1")

    def replace(self) -> Answer:
        """Replace the payload of a waiting item; it starts anew, in its place."""
        item = self.dice.choice(list(self.waiting))
        self.headers[item] = self.dice.choice(self.choices)
        self.tried.add(item)
        return self.queue.publish(item, body=packed(**self.headers[item]))


@pytest.mark.parametrize("seed", seeds(2))
def test_play(unopened: Queue, seed: int) -> None:
    """Nobody gets an item that it does not select, nothing is lost, order holds, and credit is idle only without items."""
    headers = [{"color": color} for color in ("red", "blue", "green", "")] + [
        {"size": "1e1"},
        {"color": "red", "size": "10"},
    ]
    selectors = (*SELECTORS, "size = 10", "size = 10 AND color = 'red' OR color = 'green'", "color > 'c'")
    played(Headers(unopened, random.Random(seed), selectors, headers), 150)


CONDITIONS = st.lists(trees(), min_size=2, max_size=8)
ITEMS = st.lists(values(), min_size=2, max_size=8)


@given(CONDITIONS, ITEMS, st.randoms())
@settings(max_examples=12, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_whom_it_may_be_for(
    runners: dict[str, Runner], asked: list[Predicate], items: list[dict[str, Value]], dice: random.Random
) -> None:
    """Issue 18 B: subscribers found by the index of conditions get exactly what plain evaluation gives them."""
    _find_subscribers(runners, asked, items, dice)


@pytest.mark.soak
@given(CONDITIONS, ITEMS, st.randoms())
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
def test_whom_it_may_be_for_for_long(
    runners: dict[str, Runner], asked: list[Predicate], items: list[dict[str, Value]], dice: random.Random
) -> None:
    """The same for five hundred plays."""
    _find_subscribers(runners, asked, items, dice)


def _find_subscribers(
    runners: dict[str, Runner], asked: list[Predicate], items: list[dict[str, Value]], dice: random.Random
) -> None:
    texts = [{name[2:]: value for name, value in item.items() if isinstance(value, str)} for item in items]
    queue = Queue(runners["valkey"], Partition(uuid.uuid4().hex, "life", 0))
    played(Headers(queue, dice, ("", *map(write_tree, asked)), texts), 40)


def played(play: Headers, steps: int) -> None:
    """Play so many steps from the start, then hand everything out."""
    play.queue.open(max_deliveries=0)
    for _ in range(steps):
        play.step()
    states = play.queue.browse(limit=1000)
    assert {item for item, state in states.items() if state != "locked"} == set(play.waiting)
    assert {item for item, state in states.items() if state == "locked"} == {
        item for worker in play.workers.values() for item in worker.held
    }
    play.queue.now += 61_000
    play.take(play.queue.expire())
    play.workers["end@x/a"] = Worker(1000, "")
    play.take(play.queue.subscribe("end@x/a", 1000))
    assert not play.waiting
    for jid in list(play.workers):
        play.queue.unsubscribe(jid, release="1")
    assert not {"selectors", "conditions", "selection_progress"} & set(play.queue.kept())


def test_nothing_is_asked_twice(queue: Queue) -> None:
    """Issue 18 B: items that nobody selects are examined in parts, not one by one for each selector."""
    for number in range(60):
        queue.subscribe(f"w{number}@x/a", 1, selector=f"color LIKE 'never{number}'")
    queue.client.config_resetstat()
    for _ in range(2):
        answer = queue.publish(*[""] * 100, body=packed(color="blue"))
        assert rest(queue, answer) == []
    stats = queue.client.info("commandstats")
    looks = sum(stats[f"cmdstat_{name}"]["calls"] for name in ("zrangebylex", "hset"))
    assert looks < 200 * 60
