"""One library for all calls: no state of one call is left in the next, whatever was called before it."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis

from broker import codec, keys
from broker.model.items.items import Envelope
from broker.model.names import Partition
from broker.redis_core.operations.operation import subid
from broker.scripts.source import Operation
from broker.settings import Packaging
from frontends.tools.servers.redis import RedisServer
from tests.lua.driver import _SNAPSHOT, SCRIPTS, Answer, Delivered, Queue, Runner, text

STEPS = 400
TIMES, MOST_TIMES = 3, 50
"""How often every operation is called with any values, at least and until each has succeeded."""

JIDS = [f"w{number}@x/a" for number in range(4)]
ITEMS = [f"i{number}" for number in range(12)]
NUMBERS = ("bytes", "count", "format", "messages", "most", "_ms", "quota", "remembered", "_seconds")
"""How the names of arguments end that are numbers."""

LIKELY: dict[str, list[Any]] = {
    "beaten": ["0"],
    "bytes": ["5"],
    "domain_quota": ["", "1 5 10 1000 10"],
    "incarnation": ["life"],
    "index": ["nodes", "affiliated"],
    "name": ["w0@x\0a\0m1", "w0@x\0a\0m2"],
    "quota": ["", "1 5 0 0 0"],
    "record": ["n1 digest x"],
}
"""What others make sense of."""

SELECTORS = ("", "", "color = 'red'", "color LIKE 'b%' AND size > 3")


class Twice(Runner):
    """Runs each call by the library, whose functions have run before, and as a script, which starts from nothing."""

    def __init__(self, server: RedisServer) -> None:
        """Keep the data of both in separate databases."""
        super().__init__(redis.Redis.from_url(server.url), Packaging.FUNCTIONS, guarded=True, checked=False)
        self.other = Runner(redis.Redis.from_url(server.url, db=1), Packaging.SCRIPTS, checked=False)
        self.answered: Counter[str] = Counter()
        self.given: dict[str, list[Any]] = defaultdict(list)
        """The values that arguments and columns had, by their names."""
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        """The rows of each partition: values of one row make sense together."""

    def anything(self, found: Operation, queue: Queue, dice: random.Random) -> None:
        """Call an operation with values that others had, which may be nonsense: then it fails in both ways, perhaps half-way."""
        values = [self._value(name, queue, dice) for name in found.arguments]
        known = [row for row in self.rows[queue.key("meta")] if row.keys() & found.columns]
        for _ in range(dice.randrange(3) if found.columns else 0):
            like = dice.choice(known) if known else {}
            values += [like[name] if name in like else self._value(name, queue, dice) for name in found.columns]
        self._call(found, [_key(name, queue) for name in found.keys], values)

    def _value(self, name: str, queue: Queue, dice: random.Random) -> Any:  # noqa: ANN401  (of any argument)
        if name == "now":
            return queue.now
        if name in LIKELY and dice.random() < 0.8:
            return dice.choice(LIKELY[name])
        # A first value that makes no sense must not be the only one.
        if name in self.given and dice.random() < 0.9:
            return dice.choice(self.given[name])
        others = ["5", "5000"] if name.endswith(NUMBERS) else ["", "1", dice.choice(ITEMS), dice.choice(JIDS)]
        return dice.choice(others)

    def _call(self, found: Operation, names: Sequence[str], values: Sequence[Any]) -> Any:  # noqa: ANN401  (what Redis answers)
        named = (*found.arguments, *found.columns * len(values))
        for name, value in zip(named, values, strict=False):
            self.given[name].append(value)
        step = len(found.columns) or 1
        for first in range(len(found.arguments), len(values), step):
            row = dict(zip(found.columns, values[first : first + step], strict=True))
            self.rows[f"{names[0].rpartition(':')[0]}:meta"].append(row)
        try:
            reply = super()._call(found, names, values)
        except redis.ResponseError:
            with pytest.raises(redis.ResponseError):
                self.other._call(found, names, values)
            reply = None
        else:
            self.answered[found.name] += 1
            assert text(reply) == text(self.other._call(found, names, values)), found.name
        # Ids of the journal's records are of the server's own clock.
        names = [name for name in names if not name.endswith(":journal")]
        assert len({tuple(text(each.client.eval(_SNAPSHOT, len(names), *names))) for each in (self, self.other)}) == 1
        return reply


def _key(name: str, queue: Queue) -> str:
    """Return a key by its name: of this partition, of its node, or of others that all tests of this module share."""
    holders: dict[str, Callable[[], str]] = {
        "partition": lambda: queue.key(name),
        "node": lambda: keys.of_node(name, queue.partition.node),
        "jid": lambda: keys.of_jid(name, "w0@x"),
        "service": lambda: keys.of_service(name),
        "qos": lambda: keys.of_qos(name),
        "process": lambda: keys.of_process(name, "1c0f9a3b"),
    }
    return holders[keys.BY_NAME[name].holder]()


class Scene:
    """Unrelated partitions, and random calls to them."""

    def __init__(self, runner: Twice, dice: random.Random) -> None:
        """Open one of each kind."""
        self.runner = runner
        self.dice = dice
        kinds: tuple[dict[str, Any], ...] = (
            {},
            {"ordered": "1", "max_deliveries": 2},
            {"keep_items": 5, "keep_ms": 1000},
            {"above": "1"},
            {"queueing": "0", "keep_ms": 10_000},
        )
        self.queues = [Queue(runner, Partition(f"node{number}", "life", 0)) for number in range(len(kinds))]
        for queue, options in zip(self.queues, kinds, strict=True):
            queue.open(**options)
        self.top = Queue(runner, Partition("top", "life", 0))
        self.top.open(partitions="0")
        self.given: list[tuple[Queue, Delivered]] = []
        self.on_all: list[Callable[[Queue], Any]] = [
            *[self.publish] * 5,
            *[self.end] * 5,
            self.subscribe,
            self.subscribe,
            self.pass_time,
            lambda queue: queue.expire(),
            lambda queue: queue.unsubscribe(self.jid(), release=self.dice.choice(["", "1"])),
            lambda queue: queue.run("subscribe_log", self.follower()),
            lambda queue: queue.commit(self.jid(), f"{queue.now}-0"),
            lambda queue: queue.browse(),
            lambda queue: queue.stats(),
            lambda queue: queue.locks(self.jid()),
            lambda queue: queue.read(),
            lambda queue: queue.run("purge"),
            lambda queue: queue.run("take_over", previous="f1", frontend="f2"),
            lambda queue: queue.run("list_references"),
        ]
        # In a log nobody holds items, since its bounds remove them.
        self.on_queues: list[Callable[[Queue], Any]] = [
            *self.on_all,
            lambda queue: queue.run("receive", self.received(queue), most=5, max_bytes=1000),
            lambda queue: queue.attach(self.jid(), self.dice.choice(["", "1", "2"])),
            lambda queue: queue.keep(self.jid()),
            lambda queue: queue.lend(self.jid(), self.reference(), self.reference()),
            lambda queue: queue.run(
                "check_references",
                {
                    "reference": self.reference(),
                    "deadline": queue.now + self.dice.choice([-1, 1]),
                    "reason": self.dice.choice(["", "withdrawn"]),
                },
            ),
        ]
        self.on_top: list[Callable[[Queue], Any]] = [
            lambda top: top.subscribe(self.jid(), self.dice.randint(1, 4), scope="items all"),
            lambda top: top.unsubscribe(self.jid(), release=self.dice.choice(["", "1"])),
            *[lambda top: top.turn(f"r-{self.dice.randrange(3)} {self.word()}", asks=2, named="r")] * 4,
            lambda top: top.run("list_references"),
            lambda top: top.expire(),
        ]

    def jid(self) -> str:
        """Choose a JID."""
        return self.dice.choice(JIDS)

    def publish(self, queue: Queue) -> Answer:
        """Publish a few, some with all options."""
        color = self.dice.choice(["red", "blue", "green"])
        body = codec.pack(Envelope(b"<x/>", headers={"color": color, "size": "4"}))
        more: dict[str, Any] = {
            "key": self.dice.choice(["", "", "k1", "k2"]),
            "once": self.dice.choice(["", "", "t1", "t2"]),
            "hints": self.dice.choice(["", "", "2000 7 0", "0 4 30000"]),
            "dedupe": self.dice.choice(["overwrite", "ignore"]),
            "node_full": self.dice.choice(["reject", "retract-oldest"]),
            "max_items": self.dice.choice([8, 1000]),
        }
        names = [self.dice.choice(["", *ITEMS]) for _ in range(self.dice.randint(1, 3))]
        return queue.publish(*names, body=body, **more)

    def end(self, queue: Queue) -> Answer:
        """End or keep a lock, in the right way or in a wrong one."""
        held = [delivery for at, delivery in self.given if at is queue]
        jid, item, token = self.jid(), self.dice.choice(ITEMS), ""
        if held:
            one = self.dice.choice(held)
            jid, item, token = one.jid, one.item, str(one.token)
            if self.dice.random() < 0.3:
                acts = [lambda: queue.bounce(jid, one), lambda: queue.confirm(jid, one), lambda: queue.renew(jid, item)]
                return self.dice.choice(acts)()
        if self.dice.random() < 0.5:
            return queue.retract(jid, item, token, request=self.dice.choice(["", "r1"]))
        return queue.unlock(jid, item, token, dead_letter=self.dice.choice(["", "1"]), reason="why")

    def subscribe(self, queue: Queue) -> Answer:
        """Subscribe a JID; a log has readers alone."""
        if queue is self.queues[-1]:
            return queue.run("subscribe_log", self.follower())
        selector = self.dice.choice(SELECTORS)
        qos = self.dice.choice(["unacknowledged", "acknowledged", "assured"])
        return queue.subscribe(self.jid(), self.dice.randint(1, 4), qos=qos, selector=selector)

    def follower(self) -> dict[str, Any]:
        """Return the row of a log reader."""
        jid = self.jid()
        start = self.dice.choice(["@latest", "@earliest"])
        return {"subid": subid(jid), "jid": jid, "credit": 2, "start": start, "lease": 0}

    def received(self, queue: Queue) -> dict[str, Any]:
        """Return the row of a receive, which takes, only looks, or asks whether there is something."""
        row = queue.receiving(self.jid(), self.dice.choice(["", "0", 1, 3]), process=self.dice.choice(["", "p1"]))
        return row if self.dice.random() < 0.7 else row | {"limit": ""}

    def word(self) -> str:
        """Choose what a queue says of a reference."""
        return self.dice.choice(
            ["unused", "passed", "silent", "unknown", "ended", "reached", "bounced", "gone", "5000"]
        )

    def reference(self) -> str:
        """Choose a reference."""
        return f"r{self.dice.randrange(8)}"

    def pass_time(self, queue: Queue) -> Answer:
        """Let time pass for everybody."""
        for each in self.queues:
            each.now += self.dice.choice([500, 5_000, 61_000])
        return queue.expire()

    def step(self) -> None:
        """Do one step somewhere."""
        queue = self.dice.choice([*self.queues, self.top])
        queue.now += 1
        acts = {self.queues[-1]: self.on_all, self.top: self.on_top}.get(queue, self.on_queues)
        answer = self.dice.choice(acts)(queue)
        self.given += [(queue, delivery) for delivery in getattr(answer, "deliveries", [])]
        del self.given[:-20]

    def anything(self, found: Operation) -> None:
        """Call an operation, and then any other one."""
        queue = self.dice.choice(self.queues)
        queue.now += 1
        for each in (found, self.dice.choice([*SCRIPTS.values()])):
            self.runner.anything(each, queue, self.dice)


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_left_of_a_call(valkey: RedisServer, seed: int) -> None:
    """Guarantee 7: any sequence of all operations answers and writes alike by one library and from nothing each time."""
    with redis.Redis.from_url(valkey.url) as client, redis.Redis.from_url(valkey.url, db=1) as other:
        client.flushdb()
        other.flushdb()
        runner = Twice(valkey)
        scene = Scene(runner, random.Random(seed))
        for _ in range(STEPS):
            scene.step()
        # No step fails, but not every operation is among them.
        assert sum(runner.answered.values()) >= STEPS and len(runner.answered) >= 24
        for played in range(MOST_TIMES):
            if played >= TIMES and runner.answered.keys() == SCRIPTS.keys():
                break
            for found in SCRIPTS.values():
                scene.anything(found)
        assert runner.answered.keys() == SCRIPTS.keys()
        other.flushdb()


def test_the_guard_bites(valkey: RedisServer) -> None:
    """A call that writes to a module's table fails: so no test on this server writes to one."""
    runner = Runner(redis.Redis.from_url(valkey.url), Packaging.FUNCTIONS, guarded=True)
    queue = Queue(runner, Partition("guarded", "life"))
    queue.open()
    spoilt = runner.library.text.replace("function budget.over()\n", "function budget.over()\nbudget.seen = 1\n")
    name = "spoilt_000000000000"
    runner.client.function_load(spoilt.replace(runner.library.name, name), replace=True)
    runner.library = type(runner.library)(name, spoilt)
    with pytest.raises(redis.ResponseError, match="writes to a module: seen"):
        queue.expire()
    runner.client.function_delete(name)
