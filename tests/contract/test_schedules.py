"""Schedules over a real server: each time once, whatever dies and whichever way the clock goes."""

import asyncio
import contextlib
import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import SecretStr

from broker import codec, keys
from broker.model.commands import (
    Browse,
    Command,
    Configure,
    Declare,
    Delete,
    InspectItems,
    ListSchedules,
    PauseSchedule,
    Publish,
    PutSchedule,
    RemoveSchedule,
    Retract,
    Subscribe,
)
from broker.model.items.hints import Hints
from broker.model.items.items import Envelope
from broker.model.names import Jid, Partition
from broker.model.nodes.schedules import Schedule, ScheduleState, ScheduleStatus
from broker.model.problems import Problem
from broker.model.results import Browsed, Declared, Done, InspectedItems, Published, Refused, Scheduled, ScheduleList
from broker.model.times import moment
from broker.redis_core.commands.internal import PartitionCommand
from broker.redis_core.commands.outbox import AcceptEntry, OutboxPage, ReadOutbox
from broker.redis_core.commands.schedule_parts import StoreSchedule
from broker.redis_core.core import RedisCore
from broker.redis_core.schedules.record import ScheduleRecord
from broker.settings import Settings
from tests.admitting import ADMITTING
from tests.contract.conftest import Door, MakeCore, Store
from tests.seeds import seeds
from tests.waiting import PATIENCE_SECONDS

ALICE, BOB = Jid("alice@localhost/home"), Jid("bob@localhost/a")
NOON = 1_796_126_400_000
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000


def put(node: str, *, by: Jid = ALICE, body: bytes = b"<report/>", **said: str) -> PutSchedule:
    """Make a schedule."""
    return PutSchedule(node, by, Schedule.read({"id": "s", **said}), codec.pack(Envelope(body)), len(body))


async def accepted(core: RedisCore, command: Command) -> ScheduleStatus:
    """Carry out a command on a schedule, and return the schedule."""
    result = await core.ask(command)
    assert isinstance(result, Scheduled), result
    return result.status


async def listed(core: RedisCore, node: str, name: str = "") -> dict[str, ScheduleStatus]:
    """Return the schedules of a node."""
    result = await core.ask(ListSchedules(node, ALICE, 100, id=name))
    assert isinstance(result, ScheduleList) and not result.after
    return {each.schedule.id: each for each in result.schedules}


async def test_real_time(make_core: MakeCore, node: str) -> None:
    """Issue 25: two frontends publish once for each second, in a node of several partitions; items say for which."""
    (core, door), (other, second) = await make_core(), await make_core()
    await core.ask(Declare(node, ALICE, {"stanzaq#partitions": ("3",)}))
    made = await accepted(core, put(node, every="1s"))
    await other.ask(Subscribe(node, BOB, BOB, 100, group="g"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        # Polled: nothing tells of a schedule's record.
        while (status := (await listed(core, node))["s"]).published < 2 or len(door.deliveries + second.deliveries) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    delivered = {(each.item_id, each.token): each for each in (*door.deliveries, *second.deliveries)}
    assert max(Counter(name for name, _ in delivered).values()) == 1
    assert made.next_ms is not None and status.missed == 0
    expected = {f"s@{moment(made.next_ms + number * SECOND, 'seconds')}" for number in range(60)}
    for each in delivered.values():
        told = codec.unpack(each.envelope).headers
        assert each.item_id in expected and each.publisher == "alice@localhost"
        assert (told["stanzaq-schedule"], f"s@{told['stanzaq-schedule-time']}") == ("s", each.item_id)


# With the time moved.


class Dead(BaseException):
    """The process has died."""


class Clock:
    """The time of Redis, for all cores of a test."""

    now_ms = NOON


_LIFE: ContextVar[int] = ContextVar("life", default=0)
"""Which life of its frontend a task belongs to: tasks of an earlier one do nothing more. Other commands have none."""


class Frontend:
    """A core whose time is moved, and which may die after so many commands, before or after Redis has got the last one."""

    def __init__(self, url: str, clock: Clock) -> None:
        """Connect; nothing runs by itself."""
        self.clock = clock
        self.core = RedisCore(
            Settings(**ADMITTING, redis_url=url, xmpp_domain="queue.localhost", xmpp_secret=SecretStr("secret")), Door()
        )
        self.stored: list[str] = []
        self._left: int | None = None
        self._before = False
        self._life = 0
        server = self.core._server
        call = server.write_call

        def timed(
            name: str,
            names: Sequence[str],
            fixed: Mapping[str, Any],
            rows: Iterable[Any] = (),
            shared: Any = None,  # noqa: ANN401
        ) -> Any:  # noqa: ANN401
            line = list(call(name, names, fixed, rows, shared))
            arguments = server.operations[name].arguments
            if "now" in arguments:
                line[3 + len(names) + arguments.index("now")] = clock.now_ms
            return tuple(line)

        setattr(server, "write_call", timed)  # noqa: B010
        self.core._outbox.follow = lambda partition: None  # type: ignore[method-assign]  # noqa: ARG005
        self.firing = self.core._handlers.firing
        self.firing._ask = self.firing._storage._ask = self.ask

    async def ask(self, command: PartitionCommand) -> Any:  # noqa: ANN401
        """Submit a command unless the process has died."""
        if _LIFE.get() not in {0, self._life}:
            raise Dead
        if self._left is not None:
            self._left -= 1
            if self._left <= 0 and (self._left < 0 or self._before):
                raise Dead
        outcome = await self.core.ask_partition(command)
        if isinstance(command, AcceptEntry) and isinstance(outcome, Published) and not outcome.duplicate:
            self.stored.append(command.ticket)
        if self._left is not None and self._left <= 0:
            raise Dead
        return outcome

    async def _make_due(self, partition: Partition) -> None:
        """Let those be due whose last attempt was cut short."""
        outbox, attempts = (keys.of_partition(name, partition) for name in ("outbox", "outbox_attempts"))
        if tried := await self.core._server.command("HKEYS", attempts):
            again = [("ZADD", outbox, "XX", 1, entry) for entry in tried]
            await self.core._server.commands([*again, ("UNLINK", attempts)])

    async def fire(self, node: str, *, after: int | None = None, before: bool = False) -> None:
        """Publish for what is due; die `after` so many commands."""
        self._life += 1
        token = _LIFE.set(self._life)
        self._left, self._before = after, before
        with contextlib.suppress(Dead):
            record = await self.core._store.read(node)
            if record is not None:
                await self._make_due(record.partition(0))
            while record is not None:
                page = await self.ask(ReadOutbox(node, record.incarnation, 0))
                if not isinstance(page, OutboxPage) or not page.entries:
                    break
                await self.firing.deliver(record.partition(0), page)
        _LIFE.reset(token)
        while not self.core.router(node).quiet:  # noqa: ASYNC110
            await asyncio.sleep(0)
        self._left = None


@pytest.fixture
async def cores(store: Store) -> AsyncIterator[list[Frontend]]:
    """Provide two frontends on an empty server."""
    async with store.client() as client:
        await client.flushall()
    clock = Clock()
    made = [Frontend(store.url, clock) for _ in range(2)]
    yield made
    for each in made:
        await each.core.stop()


SPANS = ("70s", "5m", "20m")
CRONS = ("*/5 * * * *", "0,30 12-14 * * *", "15 * * * *")


def chosen(name: str, dice: random.Random) -> dict[str, str]:
    """Say a schedule by chance."""
    when = (
        {"every": dice.choice(SPANS)} if dice.random() < 0.5 else {"cron": dice.choice(CRONS), "zone": "Asia/Kolkata"}
    )
    rest = {"overlap": dice.choice(("queue", "queue", "skip")), "catchup": dice.choice(("none", "last", "all"))}
    return {"id": name, **when, **rest, **({"jitter": "20s"} if dice.random() < 0.3 else {})}


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("seed", seeds(2))
async def test_play(cores: list[Frontend], store: Store, node: str, seed: int, partitions: int) -> None:
    """Issue 25: frontends die at any line, Redis loses its last second, the clock goes back: each time counts once."""
    dice, play = random.Random(f"{seed} {partitions}"), Play(cores, node)
    await play.begin(partitions)
    steps = ["put", "go", "go", "go", "fire", "fire", "fire", "back", "pause", "remove", "lose", "work"]
    async with store.client() as client:
        for _ in range(60):
            match dice.choice(steps):
                case "go":
                    passed = dice.choice((SECOND, 10 * SECOND, 61 * SECOND, 10 * MINUTE, 2 * HOUR))
                    play.clock.now_ms += passed
                    if passed > SECOND:
                        # Redis loses no more than its last second.
                        play.kept = []
                case "back":
                    play.clock.now_ms -= dice.choice((SECOND, 30 * SECOND, 20 * MINUTE))
                    # After a loss a schedule catches up as of this time, which is another one: not both at once.
                    play.kept = []
                case "fire":
                    play.kept = [await client.dump(name) for name in play.names]
                    await asyncio.gather(
                        *(
                            each.fire(node, after=dice.choice((None, 1, 2, 3, 5, 8, 13)), before=dice.random() < 0.5)
                            for each in dice.choice((cores[:1], cores[1:], cores))
                        )
                    )
                case "lose" if play.kept:
                    async with client.pipeline() as at_once:
                        for name, value in zip(play.names, play.kept, strict=True):
                            at_once.delete(name)
                            if value is not None:
                                at_once.restore(name, 0, value)
                        await at_once.execute()
                    play.kept = []
                    # A frontend comes within the hour that tickets are kept.
                    await cores[1].fire(node)
                case step:
                    await play.change(step, dice)
        await play.end()


class Play:
    """A node with schedules, and what is known of them."""

    def __init__(self, cores: list[Frontend], node: str) -> None:
        """Play on a node that is made in `begin`."""
        self.cores, self.node = cores, node
        self.core, self.clock = cores[0].core, cores[0].clock
        self.kept: list[Any] = []
        self.names: list[str] = []
        self.paused: set[str] = set()
        """Generations that were paused once: times passed meanwhile."""

    async def begin(self, partitions: int) -> None:
        """Make the node, with a worker."""
        options = {"stanzaq#partitions": (str(partitions),), "pubsub#max_items": ("100000",)}
        assert await self.core.ask(Declare(self.node, ALICE, options)) == Declared(self.node)
        found = await self.core._store.read(self.node)
        assert found is not None
        self.record = found
        await self.core.ask(Subscribe(self.node, BOB, BOB, 1_000, group="g"))
        first = found.partition(0)
        self.names = [keys.of_partition(name, first) for name in ("schedules", "outbox")]

    async def change(self, step: str, dice: random.Random) -> None:
        """Take a step that a person or a worker takes; what Redis has lost before it is known by then."""
        name = dice.choice("abcd")
        match step:
            case "put":
                asked = replace(put(self.node, every="1s"), schedule=Schedule.read(chosen(name, dice)))
                await accepted(self.core, asked)
            case "pause":
                if found := await self.stored(name):
                    self.paused.add(found.generation)
                await self.core.ask(PauseSchedule(self.node, ALICE, name, paused=dice.random() < 0.5))
            case "remove" if dice.random() < 0.3:
                await self.core.ask(RemoveSchedule(self.node, ALICE, name))
            case "work":
                door = self.core._outlet
                assert isinstance(door, Door)
                for each in door.deliveries:
                    await self.core.ask(Retract(self.node, BOB, each.item_id, each.token))
                door.deliveries.clear()
                return
        self.kept = []

    async def stored(self, name: str) -> ScheduleRecord | None:
        """Return the record of a schedule."""
        found = await self.core._handlers.firing._storage.read_one(self.record, name)
        assert not isinstance(found, Refused)
        return found.record

    async def end(self) -> None:
        """Let a frontend finish, and compare: no time has counted twice, and none of a schedule is forgotten."""
        await self.cores[1].fire(self.node)
        stored = Counter(tuple(ticket.split("-")[-2:]) for each in self.cores for ticket in each.stored)
        assert set(stored.values()) <= {1}, stored
        for name in "abcd":
            record = await self.stored(name)
            if record is None:
                continue
            assert record.due_ms is None or record.due_ms > self.clock.now_ms
            published = {int(at) for generation, at in stored if generation == record.generation}
            times = set(itertools.takewhile(partial(precedes, record), record.timetable.times(record.anchor_ms)))
            # The clock may have gone back from a time that was begun with.
            begun = {record.firing_ms} if record.firing_ms is not None else set()
            assert len(published - begun) == record.published and published <= times
            if record.generation not in self.paused:
                assert len(times - begun) == record.published + record.missed + record.skipped


def precedes(record: ScheduleRecord, at: int) -> bool:
    """Return whether a time comes before a schedule's next one."""
    return record.next_ms is None or at < record.next_ms


REFERENCE = {
    ("Europe/Berlin", "2026-03-26"): {
        "0 9 * * 1-5": "26 08:00, 27 08:00, 30 07:00, 31 07:00, 01 07:00",
        "30 2 * * *": "26 01:30, 27 01:30, 28 01:30, 29 01:00, 30 00:30, 31 00:30, 01 00:30",
        "15,45 1,2 * * 0": "29 00:15, 29 00:45, 29 01:00",
    },
    ("Europe/Berlin", "2026-10-22"): {
        "0 9 * * 1-5": "22 07:00, 23 07:00, 26 08:00, 27 08:00, 28 08:00",
        "30 2 * * *": "22 00:30, 23 00:30, 24 00:30, 25 00:30, 25 01:30, 26 01:30, 27 01:30, 28 01:30",
        "15,45 1,2 * * 0": "24 23:15, 24 23:45, 25 00:15, 25 00:45, 25 01:15, 25 01:45",
    },
    ("America/New_York", "2026-03-05"): {
        "0 9 * * 1-5": "05 14:00, 06 14:00, 09 13:00, 10 13:00, 11 13:00",
        "30 2 * * *": "05 07:30, 06 07:30, 07 07:30, 08 07:00, 09 06:30, 10 06:30, 11 06:30",
        "15,45 1,2 * * 0": "08 06:15, 08 06:45, 08 07:00",
    },
    ("America/New_York", "2026-10-29"): {
        "0 9 * * 1-5": "29 13:00, 30 13:00, 02 14:00, 03 14:00, 04 14:00",
        "30 2 * * *": "29 06:30, 30 06:30, 31 06:30, 01 07:30, 02 07:30, 03 07:30, 04 07:30",
        "15,45 1,2 * * 0": "01 05:15, 01 05:45, 01 06:15, 01 06:45, 01 07:15, 01 07:45",
    },
    ("Australia/Lord_Howe", "2026-04-02"): {
        "0 9 * * 1-5": "02 22:00, 05 22:30, 06 22:30, 07 22:30, 08 22:30",
        "30 2 * * *": "02 15:30, 03 15:30, 04 16:00, 05 16:00, 06 16:00, 07 16:00, 08 16:00",
        "15,45 1,2 * * 0": "04 14:15, 04 14:45, 04 15:15, 04 15:45, 04 16:15",
    },
    ("Australia/Lord_Howe", "2026-10-01"): {
        "0 9 * * 1-5": "01 22:30, 04 22:00, 05 22:00, 06 22:00, 07 22:00",
        "30 2 * * *": "01 16:00, 02 16:00, 03 15:30, 04 15:30, 05 15:30, 06 15:30, 07 15:30",
        "15,45 1,2 * * 0": "03 14:45, 03 15:15, 03 15:30, 03 15:45",
    },
}
"""What croniter 7.0 lists for the weeks in which clocks change: zone and first day, then UTC by expression.

It repeats the times of an hour that is repeated. Ours, like Debian's cron, take the first of two equal times.
"""


@pytest.mark.parametrize(("zone", "begin"), REFERENCE)
async def test_a_week(cores: list[Frontend], node: str, zone: str, begin: str) -> None:
    """Issue 25: over a week in which clocks change, items come at the times that a reference library lists."""
    core, clock, place = cores[0].core, cores[0].clock, ZoneInfo(zone)
    first = datetime.fromisoformat(f"{begin}T00:00:00Z")
    clock.now_ms = int(first.timestamp()) * SECOND - 1
    await core.ask(Declare(node, ALICE, {}))
    lists = REFERENCE[zone, begin]
    for number, cron in enumerate(lists):
        await accepted(core, put(node, id=str(number), cron=cron, zone=zone, catchup="all"))
    for hour in range(7 * 24):
        clock.now_ms += HOUR
        await cores[hour % 2].fire(node)
    found = await core.ask(Browse(node, ALICE, (), 1_000))
    assert isinstance(found, Browsed)
    names = Counter(each.item_id for each in found.items)
    expected = set[str]()
    for number, times in enumerate(lists.values()):
        for text in times.split(", "):
            days = (first + timedelta(days=day) for day in range(7))
            time = next(each for each in days if f"{each:%d}" == text[:2])
            time = time.replace(hour=int(text[3:5]), minute=int(text[6:]))
            if not time.astimezone(place).fold:
                expected.add(f"{number}@{time:%Y-%m-%dT%H:%M:%SZ}")
    assert names == Counter(expected)


@pytest.mark.parametrize("catchup", ["none", "last", "all"])
async def test_an_outage(cores: list[Frontend], node: str, catchup: str) -> None:
    """Issue 25: what an outage has left out is made up for as the schedule says, and told."""
    core, clock = cores[0].core, cores[0].clock
    await core.ask(Declare(node, ALICE, {}))
    await accepted(core, put(node, every="1h", catchup=catchup))
    clock.now_ms += 30 * HOUR + 30 * MINUTE
    await cores[1].fire(node)
    status = (await listed(core, node))["s"]
    published = {"none": 0, "last": 1, "all": 30}[catchup]
    assert (status.published, status.missed) == (published, 30 - published)
    assert status.next_ms == NOON + 31 * HOUR
    assert status.missed_ms == {"none": NOON + 30 * HOUR, "last": NOON + 29 * HOUR, "all": None}[catchup]
    counted = cores[1].core.metrics.tally.counts
    assert (counted["scheduled"], counted["schedule_missed"]) == (published, 30 - published)


async def test_overlap(cores: list[Frontend], node: str) -> None:
    """`skip` leaves out times while the last item is in the node, waiting or locked; `queue` does not."""
    core, clock, door = cores[0].core, cores[0].clock, cores[0].core._outlet
    assert isinstance(door, Door)
    await core.ask(Declare(node, ALICE, {}))
    await accepted(core, put(node, id="one", every="10s", overlap="skip"))
    await accepted(core, put(node, id="all", every="10s", catchup="all"))
    for number in range(6):
        clock.now_ms += 10 * SECOND
        await cores[number % 2].fire(node)
        if number == 2:
            await core.ask(Subscribe(node, BOB, BOB, 10))
        if number == 4:
            (held,) = (each for each in door.deliveries if each.item_id.startswith("one"))
            await core.ask(Retract(node, BOB, held.item_id, held.token))
    shown = await listed(core, node)
    assert [(shown[name].published, shown[name].skipped) for name in ("one", "all")] == [(2, 4), (6, 0)]


async def test_skipping_many_times(cores: list[Frontend], node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 8: however many times are skipped after an outage, the process does other things meanwhile."""
    core, clock, skip, skipped = cores[0].core, cores[0].clock, ScheduleRecord.skip, list[int]()
    await core.ask(Declare(node, ALICE, {}))
    await accepted(core, put(node, every="1s", overlap="skip", catchup="all"))
    clock.now_ms += SECOND
    await cores[0].fire(node)
    clock.now_ms += 5_000 * SECOND

    def counted(record: ScheduleRecord) -> ScheduleRecord:
        skipped[-1] += 1
        return skip(record)

    async def turn() -> None:
        while True:
            skipped.append(0)
            await asyncio.sleep(0)

    monkeypatch.setattr(ScheduleRecord, "skip", counted)
    turning = asyncio.create_task(turn())
    await cores[1].fire(node)
    turning.cancel()
    assert (await listed(core, node))["s"].skipped == sum(skipped) == 5_000 and max(skipped) <= 1_000


async def test_room(cores: list[Frontend], node: str) -> None:
    """An item without room waits, and its schedule with it; nothing is lost when there is room, or when it is deleted."""
    core, clock = cores[0].core, cores[0].clock
    await core.ask(Declare(node, ALICE, {"pubsub#max_items": ("1",)}))
    await accepted(core, put(node, every="10s", catchup="all"))
    clock.now_ms += 40 * SECOND
    await cores[0].fire(node)
    assert (await listed(core, node))["s"].published == 1
    clock.now_ms += 40 * SECOND
    await cores[1].fire(node)
    await core.ask(Configure(node, ALICE, {"pubsub#max_items": ("100",)}))
    await cores[1].fire(node)
    assert (await listed(core, node))["s"].published == 8
    await core.ask(Configure(node, ALICE, {"pubsub#max_items": ("8",)}))
    clock.now_ms += 10 * SECOND
    await cores[1].fire(node)
    assert await core.ask(RemoveSchedule(node, ALICE, "s")) == Done() and not await listed(core, node)


@pytest.mark.parametrize("catchup", ["none", "last", "all"])
async def test_a_pause_before_a_time_was_served(cores: list[Frontend], node: str, catchup: str) -> None:
    """Issue 25: times that pass during a pause are not published nor missed, though one before it was not served yet."""
    core, clock = cores[0].core, cores[0].clock
    await core.ask(Declare(node, ALICE, {}))
    await accepted(core, put(node, every="1s", catchup=catchup))
    clock.now_ms += 2 * SECOND
    await accepted(core, PauseSchedule(node, ALICE, "s", paused=True))
    clock.now_ms += 10 * MINUTE
    await accepted(core, PauseSchedule(node, ALICE, "s", paused=False))
    await cores[1].fire(node)
    status = (await listed(core, node))["s"]
    assert status.published + status.missed == 2 and status.next_ms == clock.now_ms + SECOND
    assert status.published == {"none": 0, "last": 1, "all": 2}[catchup]
    clock.now_ms += SECOND
    await cores[1].fire(node)
    assert (await listed(core, node))["s"].published == status.published + 1


async def test_draining(cores: list[Frontend], node: str) -> None:
    """A node that is drained takes no new items from schedules either; they go on afterwards."""
    core, clock = cores[0].core, cores[0].clock
    await core.ask(Declare(node, ALICE, {}))
    await accepted(core, put(node, every="10s"))
    await core.ask(Configure(node, ALICE, {"stanzaq#state": ("draining",)}))
    clock.now_ms += 10 * SECOND
    await cores[0].fire(node)
    assert (await listed(core, node))["s"].published == 0
    await core.ask(Configure(node, ALICE, {"stanzaq#state": ("running",)}))
    await cores[0].fire(node)
    assert (await listed(core, node))["s"].published == 1


async def test_items(cores: list[Frontend], node: str) -> None:
    """An item has its schedule's key, options and payload; one whose id another item has gets one of the service."""
    core, clock = cores[0].core, cores[0].clock
    await core.ask(Declare(node, ALICE, {}))
    asked = replace(put(node, every="10s"), key="k", hints=Hints(priority=9))
    await accepted(core, asked)
    shown = (await listed(core, node, "s"))["s"].item
    assert shown is not None and (shown.envelope, shown.key, shown.hints) == (asked.envelope, "k", asked.hints)
    name = f"s@{moment(NOON + 10 * SECOND, 'seconds')}"
    await core.ask(Publish(node, ALICE, name, asked.envelope, 1))
    clock.now_ms += 10 * SECOND
    await cores[0].fire(node)
    found = await core.ask(InspectItems(node, ALICE, (), 10))
    assert isinstance(found, InspectedItems) and len(found.items) == 2
    other = next(each for each in found.items if each.item_id != name)
    assert (other.key, other.priority, other.publisher) == ("k", 9, "alice@localhost")
    assert (await listed(core, node))["s"].last_item == other.item_id


async def test_repeats(cores: list[Frontend], node: str) -> None:
    """The same request again changes nothing; another one replaces the schedule, which stays paused."""
    core, clock = cores[0].core, cores[0].clock
    await core.ask(Declare(node, ALICE, {}))
    first = await accepted(core, put(node, every="10s"))
    clock.now_ms += 10 * SECOND
    await cores[0].fire(node)
    again = await accepted(core, put(node, every="10s"))
    assert (again.published, again.last_ms) == (1, first.next_ms)
    paused = await accepted(core, PauseSchedule(node, ALICE, "s", paused=True))
    assert await accepted(core, PauseSchedule(node, ALICE, "s", paused=True)) == paused
    assert (await accepted(core, put(node, every="20s"))).state is ScheduleState.PAUSED
    resumed = await accepted(core, PauseSchedule(node, ALICE, "s", paused=False))
    assert (resumed.state, resumed.next_ms, resumed.published) == (ScheduleState.ACTIVE, NOON + 30 * SECOND, 0)


async def test_made_paused(cores: list[Frontend], node: str) -> None:
    """A schedule is made paused by one command, so that it never runs in between; another one resumes it as it is."""
    core, clock = cores[0].core, cores[0].clock
    await core.ask(Declare(node, ALICE, {}))
    made = await accepted(core, replace(put(node, every="10s"), paused=True))
    assert made.state is ScheduleState.PAUSED
    clock.now_ms += MINUTE
    await cores[1].fire(node)
    assert await accepted(core, replace(put(node, every="10s"), paused=True)) == made
    assert await accepted(core, put(node, every="10s")) == made
    resumed = await accepted(core, replace(put(node, every="10s"), paused=False))
    assert (resumed.state, resumed.missed) == (ScheduleState.ACTIVE, 0)
    assert resumed.next_ms == NOON + 70 * SECOND
    replaced = await accepted(core, replace(put(node, every="20s"), paused=True))
    assert (replaced.state, replaced.published) == (ScheduleState.PAUSED, 0)


async def test_replaced_while_publishing(cores: list[Frontend], node: str) -> None:
    """A change of a schedule that has begun to publish finishes that first: the item is the old one, and comes once."""
    core, clock = cores[0].core, cores[0].clock
    await core.ask(Declare(node, ALICE, {}))
    await accepted(core, put(node, every="10s", body=b"<old/>"))
    for body in (b"<new/>", b"<newer/>"):
        clock.now_ms += 10 * SECOND
        # It dies when the record says that it has begun.
        await cores[1].fire(node, after=2)
        await accepted(core, put(node, every="10s", body=body))
    found = await core.ask(Browse(node, ALICE, (), 10))
    assert isinstance(found, Browsed)
    assert [codec.unpack(each.envelope).body for each in found.items] == [b"<old/>", b"<new/>"]


async def test_bad_input(cores: list[Frontend], node: str) -> None:
    """Guarantee 7: schedules that cannot be, or that the sender may not have, are refused; nothing is stored."""
    core, clock = cores[0].core, cores[0].clock
    await core.ask(Declare(node, ALICE, {"pubsub#max_payload_size": ("100",)}))
    await core.ask(Declare(f"{node}-log", ALICE, {"pubsub#queueing": ("0",)}))
    await core.ask(Declare(f"{node}-all", ALICE, {"pubsub#node_type": ("collection",)}))
    for command, problem in (
        (put(node, cron="0 9 * * 8"), Problem.BAD_REQUEST),
        (put(node, cron="0 9 * * *", zone="Mars/Phobos"), Problem.BAD_REQUEST),
        (put(node, cron="0 0 30 2 *"), Problem.BAD_REQUEST),
        (put(node, every="1s", end="2026-01-01T00:00:00Z"), Problem.BAD_REQUEST),
        (put(node, every="1s", by=BOB), Problem.FORBIDDEN),
        (put(node, every="1s", body=b"x" * 101), Problem.PAYLOAD_TOO_BIG),
        (put("nobody", every="1s"), Problem.NODE_NOT_FOUND),
        (put(f"{node}-all", every="1s"), Problem.PUBLISH_UNSUPPORTED),
        (put(f"{node}-log", every="1s", overlap="skip"), Problem.UNSUPPORTED),
        (ListSchedules(node, BOB, 10), Problem.FORBIDDEN),
        (ListSchedules(node, ALICE, 10, id="s"), Problem.ITEM_NOT_FOUND),
        (PauseSchedule(node, ALICE, "s", paused=True), Problem.ITEM_NOT_FOUND),
        (PauseSchedule(node, BOB, "s", paused=True), Problem.FORBIDDEN),
        (RemoveSchedule(node, ALICE, "s"), Problem.ITEM_NOT_FOUND),
        (RemoveSchedule(node, BOB, "s"), Problem.FORBIDDEN),
    ):
        result = await core.ask(command)
        assert isinstance(result, Refused) and result.problem is problem, (command, result)
        assert result.detail or problem is Problem.NODE_NOT_FOUND
    assert not await listed(core, node)
    assert isinstance(await core.ask(put(f"{node}-log", every="10s")), Scheduled)
    clock.now_ms += 10 * SECOND
    await cores[0].fire(f"{node}-log")
    assert (await listed(core, f"{node}-log"))["s"].published == 1


async def test_of_a_deleted_node(cores: list[Frontend], store: Store, node: str) -> None:
    """A node's schedules end with it, and a new node of its name has none."""
    core, clock = cores[0].core, cores[0].clock
    await core.ask(Declare(node, ALICE, {}))
    await accepted(core, put(node, every="10s"))
    clock.now_ms += 10 * SECOND
    await core.ask(Delete(node, ALICE))
    await cores[1].fire(node)
    async with store.client() as client:
        assert not [name async for name in client.scan_iter("*:schedule*")]
    await core.ask(Declare(node, ALICE, {}))
    await cores[1].fire(node)
    assert not await listed(core, node)


async def test_of_a_node_that_is_now_of_another(
    cores: list[Frontend], node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule publishes nothing to the node of somebody else who has created it again while it was about to publish."""
    core, clock = cores[0].core, cores[0].clock
    await core.ask(Declare(node, ALICE, {}))
    await accepted(core, put(node, every="10s"))
    clock.now_ms += 10 * SECOND
    ask, made = cores[1].ask, list[bool]()

    async def late(command: PartitionCommand) -> Any:  # noqa: ANN401
        if isinstance(command, AcceptEntry):
            made.append(True)
            assert await core.ask(Delete(node, ALICE)) == Done()
            assert await core.ask(Declare(node, BOB, {})) == Declared(node)
        return await ask(command)

    monkeypatch.setattr(cores[1].firing, "_ask", late)
    await cores[1].fire(node)
    found = await core.ask(Browse(node, BOB, (), 10))
    assert isinstance(found, Browsed) and (made, found.items) == ([True], ())


async def test_pages(cores: list[Frontend], store: Store, node: str) -> None:
    """Schedules are listed in pages, by id, also where a whole page cannot be read."""
    core = cores[0].core
    await core.ask(Declare(node, ALICE, {}))
    await asyncio.gather(*(accepted(core, put(node, id=f"s{number:02}", every="1h")) for number in range(25)))
    made = await core._store.read(node)
    assert made is not None
    async with store.client() as client:
        torn = {f"s{number:02}": "{" for number in range(8, 20)}
        await client.hset(keys.of_partition("schedules", made.partition(0)), mapping=torn)
    page = await core.ask(ListSchedules(node, ALICE, 10))
    assert isinstance(page, ScheduleList)
    found, places = list(page.schedules), [page.after]
    while page.after:
        page = await core.ask(ListSchedules(node, ALICE, 10, page.after))
        assert isinstance(page, ScheduleList)
        found += page.schedules
        places.append(page.after)
    assert [each.schedule.id for each in found] == [f"s{number:02}" for number in (*range(8), *range(20, 25))]
    assert places == ["s09", "s19", ""]


async def test_a_record_that_cannot_be_read(cores: list[Frontend], store: Store, node: str) -> None:
    """A record that something else has corrupted keeps no other schedule back, and can be replaced."""
    core, clock = cores[0].core, cores[0].clock
    await core.ask(Declare(node, ALICE, {}))
    for name in ("bad", "good"):
        await accepted(core, put(node, id=name, every="10s"))
    found = await core._store.read(node)
    assert found is not None
    async with store.client() as client:
        await client.hset(keys.of_partition("schedules", found.partition(0)), "bad", "{")
    clock.now_ms += 10 * SECOND
    await cores[0].fire(node)
    assert {name: each.published for name, each in (await listed(core, node)).items()} == {"good": 1}
    assert (await accepted(core, put(node, id="bad", every="10s"))).published == 0


async def test_ten_thousand(make_core: MakeCore, store: Store, node: str) -> None:
    """Issue 25: 10,000 schedules cost an idle frontend no more than none: twenty commands a second."""
    core, _ = await make_core()
    for number in range(10):
        name = f"{node}-{number}"
        assert await core.ask(Declare(name, ALICE, {})) == Declared(name)
        made = await accepted(core, put(name, id="0", every="1d"))
        found = await core._store.read(name)
        assert found is not None and made.next_ms is not None
        one = ScheduleRecord(made.schedule, "g", ALICE, "", "", 0, made.next_ms)
        await asyncio.gather(
            *(
                core.ask_partition(
                    StoreSchedule(name, found.incarnation, str(each), b"", str(one).encode(), made.next_ms, b"item")
                )
                for each in range(1, 1_000)
            )
        )
        full = await core.ask(put(name, id="one more", every="1d"))
        assert isinstance(full, Refused) and full.problem is Problem.NOT_ACCEPTABLE
    async with store.client() as client:
        await asyncio.sleep(1)
        before, began = (await client.info("stats"))["total_commands_processed"], time.monotonic()
        await asyncio.sleep(4)
        spent = (await client.info("stats"))["total_commands_processed"] - before
    assert 0 < spent <= 20 * (time.monotonic() - began) + 25
