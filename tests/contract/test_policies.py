"""All policies of a node at once: its guarantees hold while two frontends serve it, of which one hangs and dies."""

import asyncio
import time
from collections import Counter
from random import Random

from broker import codec
from broker.model.commands import (
    Browse,
    Cancel,
    Complete,
    Declare,
    ListSchedules,
    Publish,
    PutSchedule,
    ReadOutcome,
    Renew,
    Retract,
    Stats,
    Subscribe,
    Unlock,
)
from broker.model.items.dependencies import NO_DEPENDENCIES, Dependencies
from broker.model.items.hints import Hints
from broker.model.items.items import Delivery, Envelope, ItemEnded
from broker.model.items.outcomes import End, ReplyMode
from broker.model.items.progress import Progress
from broker.model.names import Jid
from broker.model.nodes.schedules import Schedule, ScheduleState
from broker.model.problems import Problem
from broker.model.results import (
    Browsed,
    Cancelled,
    Counted,
    Declared,
    Ended,
    Published,
    Refused,
    Retracted,
    Scheduled,
    ScheduleList,
    Subscribed,
    Unlocked,
)
from broker.model.times import moment
from broker.redis_core.core import RedisCore
from tests.contract.conftest import Door, MakeCore, Store
from tests.contract.test_dependencies import age
from tests.waiting import PATIENCE_SECONDS

ALICE, W1, W2 = Jid("alice@x/home"), Jid("w1@x/a"), Jid("w2@x/b")

MOST, MOST_OF_KEY, RATE, BURST, RATE_OF_KEY, PUBLISH_RATE = 6, 2, 60, 20, 30, 25
REST, BACKOFF, JITTER, ATTEMPTS = 0.1, 2, 0.5, 3
OPTIONS = {
    "retry_delay": REST, "retry_backoff": BACKOFF, "retry_jitter": JITTER, "max_deliveries": ATTEMPTS,
    "rate": f"{RATE}/s", "rate_burst": BURST, "max_in_flight": MOST,
    "rate_by_key": f"{RATE_OF_KEY}/s", "max_in_flight_by_key": MOST_OF_KEY, "publish_rate": f"{PUBLISH_RATE}/s",
    "fair": "key", "fair_weights": "gold=3", "result_seconds": 600, "journal": "publisher key",
}  # fmt: skip
OF_ONE_PARTITION = {f"stanzaq#{name}" for name in ("rate", "rate_burst", "max_in_flight", "publish_rate")}
TICKS = 2
STEPS = 150


class Play:
    """A node with every policy, and what a publisher and two workers know of it."""

    def __init__(self, node: str, partitions: int, fronts: list[tuple[RedisCore, Door]]) -> None:
        """Begin with nothing."""
        self.node, self.partitions, self.fronts, self.chance = node, partitions, fronts, Random(partitions)
        self.ticks: set[str] = set()
        """The items of its schedule."""
        self.seen: dict[int, int] = {}
        self.accepted: dict[str, Dependencies] = {}
        self.attempts: set[tuple[str, str, int]] = set()
        self.held: dict[str, Delivery] = {}
        self.rests: dict[str, float] = {}
        self.ends: dict[str, End] = {}
        self.asked: set[str] = set()
        """Items whose publisher wants to be told how they end."""
        self.told: dict[str, End] = {}
        self.tokens: dict[str, int] = {}
        self.too_fast = 0
        self.began = time.monotonic()
        self.bounds = partitions == 1

    @property
    def core(self) -> RedisCore:
        """Return any frontend."""
        return self.chance.choice(self.fronts)[0]

    async def begin(self) -> None:
        """Create the node with its workers and its schedule, and publish more than its rate allows."""
        core, node = self.fronts[0][0], self.node
        options = {f"stanzaq#{name}": (str(value),) for name, value in OPTIONS.items()}
        if not self.bounds:
            options = {name: value for name, value in options.items() if name not in OF_ONE_PARTITION}
        options["stanzaq#partitions"] = (str(self.partitions),)
        assert await core.ask(Declare(node, ALICE, options)) == Declared(node)
        for worker in (W1, W2):
            assert isinstance(
                await core.ask(Subscribe(node, worker, worker, 20, group="" if self.bounds else "g")), Subscribed
            )
        first = (int(time.time()) + 2) * 1_000
        said = {"start": moment(first), "end": moment(first + (TICKS - 1) * 1_000), "catchup": "all", "every": "1s"}
        tick = Schedule.read({"id": "tick", **said})
        made = await core.ask(PutSchedule(node, ALICE, tick, codec.pack(Envelope(b"<x/>")), 4, key="tick"))
        assert isinstance(made, Scheduled)
        self.ticks = {f"tick@{moment(first + number * 1_000, 'seconds')}" for number in range(TICKS)}
        # The rate allows so many in no less than seven seconds.
        await self.publish(200)
        assert bool(self.too_fast) == self.bounds

    async def go_on(self, steps: int) -> None:
        """Do what publishers and workers do, by chance."""
        for _ in range(steps):
            self.receive()
            match self.chance.choice(("publish", *["work"] * 12, "cancel")):
                case "publish" if len(self.accepted) < 90:
                    await self.publish(self.chance.choice((1, 2, 4)))
                case "cancel":
                    await self.cancel()
                case _:
                    await self.work()
            await asyncio.sleep(0.01)

    async def finish(self, store: Store) -> None:
        """Acknowledge until every item has ended."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (self.accepted.keys() == self.ends.keys() >= self.ticks):
                self.receive()
                self.settle()
                await self.work(well=True)
                await age(store, self.node, self.fronts[0][0], self.partitions)
                await asyncio.sleep(0.005)
        assert {name for name in self.accepted if name.startswith("tick@")} == self.ticks
        assert set(self.ends.values()) == {End.ACKNOWLEDGED, End.DEAD, End.CANCELLED}

    async def publish(self, count: int) -> None:
        """Publish some items at once; one that comes too soon is refused, and must never be seen."""
        sent = dict[str, Publish]()
        for _ in range(count):
            name = f"i{len(self.accepted) + self.too_fast + len(sent)}"
            # Nobody asked for the end of a schedule's items, so it is not kept.
            known = sorted(each for each in self.accepted if not each.startswith("tick@"))
            parents = self.chance.sample(known, min(len(known), self.chance.choice((0, 0, 1, 2))))
            regardless = bool(parents) and self.chance.random() < 0.3
            hints = Hints(
                delay_ms=self.chance.choice((0, 0, 200)),
                priority=self.chance.choice((4, 4, 9)),
                reply=self.chance.choice((ReplyMode.TOLD, ReplyMode.KEPT)),
                after=Dependencies.parse_names(" ".join(parents), regardless=regardless)
                if parents
                else NO_DEPENDENCIES,
            )
            key = self.chance.choice(("", "noisy", "noisy", "gold", "k"))
            sent[name] = Publish(self.node, ALICE, name, codec.pack(Envelope(b"<x/>")), 4, key=key, hints=hints)
        core = self.core
        for name, outcome in zip(sent, await asyncio.gather(*map(core.ask, sent.values())), strict=True):
            if isinstance(outcome, Refused):
                assert outcome.problem is Problem.TOO_FAST and outcome.wait_ms > 0
                self.too_fast += 1
            else:
                assert outcome == Published(name)
                self.accepted[name] = sent[name].hints.after
                if sent[name].hints.reply is ReplyMode.TOLD:
                    self.asked.add(name)
        assert not self.bounds or len(self.accepted) - TICKS <= 1 + PUBLISH_RATE * (1 + time.monotonic() - self.began)

    def receive(self) -> None:
        """Take what frontends have sent, and check it against all bounds."""
        now = time.monotonic()
        self.settle()
        for _, door in self.fronts:
            found = door.deliveries[self.seen.get(id(door), 0) :]
            self.seen[id(door)] = len(door.deliveries)
            for each in found:
                if each.partition.node == self.node:
                    self._receive(each, now)
            ends = [told for told in door.notices if isinstance(told, ItemEnded) and told.node == self.node]
            self.told |= {told.outcome.item_id: told.outcome.state for told in ends}
        assert not self.bounds or len(self.held) <= MOST
        keys = Counter(each.key for each in self.held.values() if each.key)
        assert all(count <= MOST_OF_KEY for count in keys.values()), keys
        spent = time.monotonic() - self.began
        assert not self.bounds or len(self.attempts) <= BURST + RATE * spent + 1
        handed = Counter(key for key, _, _ in self.attempts if key)
        assert all(count <= 1 + RATE_OF_KEY * (1 + spent) for count in handed.values()), handed

    def _receive(self, each: Delivery, now: float) -> None:
        name = each.item_id
        if name.startswith("tick@"):
            self.accepted.setdefault(name, NO_DEPENDENCIES)
        self.attempts.add((each.key, name, each.token))
        assert each.attempt <= each.of == ATTEMPTS
        if name in self.ends:
            # It may have gone out just before it was cancelled, or is sent once more for a frontend that has died.
            assert self.ends[name] is End.CANCELLED or each.token <= self.tokens[name]
            return
        wanted = self.accepted[name]
        assert all(parent.item_id in self.ends for parent in wanted.parents)
        assert wanted.regardless or all(self.ends[parent.item_id] is End.ACKNOWLEDGED for parent in wanted.parents)
        if (rest := self.rests.pop(name, 0)) and each.attempt > 1:
            assert now - rest >= REST * BACKOFF ** (each.attempt - 2) * (1 - JITTER)
        if each.token >= self.tokens.get(name, 0):
            self.tokens[name] = each.token
            self.held[name] = each

    async def work(self, *, well: bool = False) -> None:
        """End a lock in some way, or tell how far the job is."""
        if not self.held:
            return
        held = self.held[self.chance.choice(sorted(self.held))]
        name, number = held.item_id, held.partition.number if held.partitioned else None
        lock = (self.node, held.subscriber, name, held.token)
        core, before = self.core, time.monotonic()
        match "ack" if well else self.chance.choice(("ack", "ack", "complete", "release", "reject", "renew")):
            case "ack":
                outcome = await core.ask(Retract(*lock, partition=number))
                assert isinstance(outcome, Retracted), outcome
                self.ends[name] = End.ACKNOWLEDGED
            case "complete":
                done = Complete(*lock, partition=number, envelope=codec.pack(Envelope(b"done")), body_bytes=4)
                assert isinstance(await core.ask(done), Retracted)
                self.ends[name] = End.ACKNOWLEDGED
            case "release":
                assert isinstance(await core.ask(Unlock(*lock, partition=number)), Unlocked)
                self.rests[name] = before
                if held.attempt == ATTEMPTS:
                    self.ends[name] = End.DEAD
            case "reject":
                assert isinstance(await core.ask(Unlock(*lock, partition=number, dead_letter=True)), Unlocked)
                self.ends[name] = End.DEAD
            case _:
                await core.ask(Renew(*lock, partition=number, progress=Progress(0.5, "half")))
                return
        del self.held[name]

    async def cancel(self) -> None:
        """Cancel an item that has not ended, whether it waits for others, rests, waits, or is held."""
        self.settle()
        if open_ := sorted(self.accepted.keys() - self.ends.keys()):
            name = self.chance.choice(open_)
            assert await self.core.ask(Cancel(self.node, ALICE, name)) == Cancelled()
            self.ends[name] = End.CANCELLED
            self.held.pop(name, None)

    def settle(self) -> None:
        """Let items die whose parents have ended badly."""
        dying = True
        while dying:
            dying = False
            for name, wanted in self.accepted.items():
                bad = any(
                    self.ends.get(each.item_id, End.ACKNOWLEDGED) is not End.ACKNOWLEDGED for each in wanted.parents
                )
                if bad and not wanted.regardless and name not in self.ends:
                    self.ends[name], dying = End.DEAD, True

    async def dead(self) -> Counter[str]:
        """Return the items whose dead letters are there."""
        found = await self.fronts[0][0].ask(Browse(f"{self.node}/dead", ALICE, (), 1_000))
        assert isinstance(found, Browsed)
        return Counter(codec.unpack(each.envelope).headers["stanzaq-dead-item"] for each in found.items)


async def test_mixed(make_core: MakeCore, store: Store, node: str) -> None:
    """Issue 25: each accepted item ends once and as its publisher is told, no bound is passed, and nothing is left."""
    fronts = [await make_core(), await make_core()]
    plays = [Play(f"{node}-{partitions}", partitions, fronts) for partitions in (1, 3)]
    await asyncio.gather(*(play.begin() for play in plays))
    await asyncio.gather(*(play.go_on(STEPS // 3) for play in plays))
    for play in plays:
        play.receive()
    # What it sends from now on reaches nobody.
    core, door = fronts.pop(0)
    door.writes = False
    for play in plays:
        for _ in range(5):
            await play.publish(1)
            await core.ask(Cancel(play.node, ALICE, "none"))
    for task in core._running:
        task.cancel()
    core._tasks.cancel()
    fronts.append(await make_core())
    await asyncio.gather(*(play.go_on(STEPS) for play in plays))
    await asyncio.gather(*(play.finish(store) for play in plays))
    await asyncio.gather(*(ended(play, store) for play in plays))


async def ended(play: Play, store: Store) -> None:
    """Wait until every publisher knows, and compare: dead letters, ends, schedule and counts."""
    node, (two, _) = play.node, play.fronts[0]
    wanted = {name: end for name, end in play.ends.items() if not name.startswith("tick@")}
    dead = Counter(name for name, end in play.ends.items() if end is End.DEAD)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await play.dead() != dead:
            assert await play.dead() <= dead
            await asyncio.sleep(0.05)
    for name, end in wanted.items():
        found = await two.ask(ReadOutcome(node, ALICE, name, 30))
        assert isinstance(found, Ended) and found.outcome is not None and found.outcome.state is end, name
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            play.receive()
            counted = await two.ask(Stats(node, ALICE))
            assert isinstance(counted, Counted)
            left = counted.waiting + counted.in_flight + counted.dying + counted.dependent
            async with store.client() as client:
                untold = [key async for key in client.scan_iter(match=f"*{node}@*:outbox")]
            if not left and not untold and play.asked <= play.told.keys():
                break
            await age(store, node, two, play.partitions)
            await asyncio.sleep(0.02)
    assert play.told.items() <= wanted.items()
    shown = await two.ask(ListSchedules(node, ALICE, 10))
    assert isinstance(shown, ScheduleList)
    (one,) = shown.schedules
    assert (one.state, one.published, one.missed, one.skipped) == (ScheduleState.ENDED, TICKS, 0, 0)
