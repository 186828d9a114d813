"""The guarantees of a node of any partitions under every mixture of publishers, workers, owners and crashes.

Only a node of one partition is shared; others are owned.

Whole cores on a real cluster, each step through one of them or through several at once. What clients see is judged as
they see it; whenever nothing is under way, the node itself is read. Time is the machine's: it passes when a step says
so.
"""

# ruff: noqa: ANN401  (outcomes of every kind pass through here)

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import pytest
import redis
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from broker import codec
from broker.model.commands import (
    Command,
    Declare,
    Delete,
    Presence,
    Publish,
    Purge,
    Read,
    Renew,
    RenewOwnership,
    Retract,
    SetSubscriptionOptions,
    Stats,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from broker.model.items.items import Delivery, Envelope, Notice
from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.results import (
    Counted,
    Declared,
    OwnershipsRenewed,
    Published,
    Purged,
    Refused,
    Renewed,
    Replay,
    Retracted,
    Subscribed,
    Unlocked,
    Unsubscribed,
)
from broker.redis_core.commands.internal import Sweep
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance.heartbeat import DeadFrontend
from broker.redis_core.redis_client.client import Server
from broker.redis_core.registry.partitioner import choose_by_hash
from broker.settings import Settings
from frontends.tools.servers.cluster import RedisCluster
from tests.admitting import ADMITTING
from tests.contract.conftest import Door
from tests.contract.ledger import MEMBER, SHARED, Ledger, Step, granted_epoch
from tests.contract.snapshot import OWNER, look
from tests.waiting import PATIENCE_SECONDS

JIDS = tuple(Jid(f"{name}@x/1") for name in "pqrs")
IDS = {"a": "", "b": "g", "c": "h", "d": ""}
BEGIN = 1_795_000_000_000
LOCK_MS = 60_000

jids = st.sampled_from(JIDS)
fronts = st.integers(0, 2)
numbers = st.sampled_from((None, None, 0, 1, 2, 3, 4, 5, 6))
groups = st.sampled_from(("g", "g", "g", "h"))
keys = st.sampled_from(("", "", "g", "h"))
parts = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True)


class Clock:
    """The time for all scripts."""

    now = BEGIN


class Telling(Door):
    """A door that records in the ledger at once; a deaf one belongs to a frontend that never sends."""

    def __init__(self, ledger: Ledger) -> None:
        """Record in `ledger`."""
        super().__init__()
        self.ledger = ledger
        self.deaf = False

    def deliver(self, batch: Sequence[Delivery]) -> None:
        """Record deliveries."""
        for delivery in () if self.deaf else batch:
            self.ledger.hear(partial(self.ledger.delivered, delivery))

    def notify(self, notice: Notice) -> None:
        """Record a notice."""
        if not self.deaf:
            self.ledger.hear(partial(self.ledger.noticed, notice))


class Severed:
    """The connection of a dead process to Redis: nothing is sent any more, and nothing is answered."""

    returns = 0

    async def send(self, _lines: Any, _durable: object = None) -> Any:
        """Cancel the caller."""
        raise asyncio.CancelledError

    everywhere = send

    async def close(self) -> None:
        """Nothing to close."""


class SpreadMachine(RuleBasedStateMachine):
    """One node, four clients, three frontends that may die."""

    url: ClassVar[str]
    runner: ClassVar[asyncio.Runner]
    clock: ClassVar[Clock]

    @initialize(
        partitions=st.sampled_from((1, 2, 3, 3, 5, 6)),
        ordered=st.booleans(),
        keep=st.sampled_from((0, 0, 2)),
        sharing=st.dictionaries(jids, st.integers(1, 5), max_size=3),
    )
    def begin(self, *, partitions: int, ordered: bool, keep: int, sharing: dict[Jid, int]) -> None:
        """Create a node by one frontend, for shared subscribers."""
        self.node = f"jobs-{secrets.token_hex(4)}"
        self.partitions, self.keep = partitions, keep
        self.ledger = Ledger(ordered=ordered)
        self.bodies = 0
        self.cores: list[tuple[RedisCore, Telling]] = []
        self.tokens: list[tuple[int, str, int, Jid]] = []
        self.clock.now += 1_000
        self.runner.run(self._begun(ordered=ordered))
        for jid, credit in sharing.items() if partitions == 1 else ():
            self.share(0, jid, credit)

    async def _begun(self, *, ordered: bool) -> None:
        self.observer, _ = self._core()
        self.cores = [self._core() for _ in range(3)]
        fields = {
            "partitions": self.partitions,
            "ordered": int(ordered),
            "max_deliveries": 0,
            "dead_letter_node": "",
            "retention_items": self.keep,
            "lock_seconds": LOCK_MS // 1000,
        }
        options = {f"stanzaq#{name}": (str(value),) for name, value in fields.items()}
        declared = await self.cores[0][0].ask(Declare(self.node, OWNER, options))
        assert declared == Declared(self.node), declared
        await self._rest()
        self.seen = await look(self.observer, self.node)

    def _core(self) -> tuple[RedisCore, Telling]:
        door = Telling(self.ledger)
        given: dict[str, Any] = {
            "redis_url": self.url,
            "xmpp_domain": "queue.localhost",
            "xmpp_secret": "secret",
            "redis_timeout": 10.0,
        }
        return RedisCore(Settings(**ADMITTING, **given), door), door

    # Publishers.

    @rule(front=fronts, number=numbers, name=st.sampled_from((None, None, *IDS)), key=keys)
    def publish(self, front: int, number: int | None, name: str | None, key: str) -> None:
        """E7, E14: an item goes to the named partition, else by its key, else by its id, else anywhere."""
        command = self._item(name, number, key)
        result = self._do(front, command, at=self._home(command))
        if number is not None and number >= self.partitions:
            assert isinstance(result, Refused) and result.problem is Problem.PARTITION_NOT_FOUND, result
        else:
            assert isinstance(result, Published), result

    @rule(
        sent=st.lists(st.tuples(fronts, st.integers(0, 5), keys), max_size=8),
        finishing=st.lists(st.tuples(fronts, st.integers(0, 20)), max_size=5, unique_by=lambda one: one[1]),
    )
    def rush(self, sent: list[tuple[int, int, str]], finishing: list[tuple[int, int]]) -> None:
        """Publish and acknowledge through several frontends at once."""
        step = Step()
        commands: list[tuple[int, Command, int | None]] = []
        for front, number, key in sent:
            at = number % self.partitions
            item = self._item(None, at, key)
            # One frontend may hand out an item that another has published, before that one has its answer.
            step.maybe[item.envelope] = key
            commands.append((front, item, at))
        mine = sorted(self.ledger.taken.items())
        chosen = {which % len(mine): front for front, which in finishing} if mine else {}
        for which, front in chosen.items():
            (number, _), taken = mine[which]
            step.finishing.add((number, taken.item, taken.jid))
            asked = Retract(self.node, taken.jid, taken.item, taken.token, partition=number)
            commands.append((front, asked, number))
        results = self._all(step, commands)
        assert all(isinstance(result, Published | Retracted) for result in results), results

    @rule(
        items=st.lists(
            st.tuples(fronts, st.integers(0, 5), st.sampled_from((None, Retract, Unlock))), min_size=2, max_size=5
        )
    )
    def one_by_one(self, items: list[tuple[int, int, Any]]) -> None:
        """Publish items one by one, and between them acknowledge or release the first of those held."""
        before = set(self.ledger.taken)
        for front, number, verb in items:
            self.publish(front, number % self.partitions, None, "")
            mine = self.ledger.taken.keys() - before
            if verb and mine:
                place = min(mine, key=lambda each: each[1])
                taken = self.ledger.taken[place]
                step = Step(finishing={(place[0], taken.item, taken.jid)})
                ended = verb(self.node, taken.jid, taken.item, taken.token, partition=place[0])
                self._do(front, ended, step, at=place[0])

    @rule(front=fronts)
    def purge(self, front: int) -> None:
        """P25: drop waiting items."""
        assert isinstance(self._do(front, Purge(self.node, OWNER)), Purged)

    # Workers.

    @rule(front=fronts, jid=jids, credit=st.integers(0, 5))
    def share(self, front: int, jid: Jid, credit: int) -> None:
        """Subscribe for shared use, whatever the subscription was before; several partitions are not shared."""
        command = Subscribe(self.node, jid, jid, credit)
        if self.partitions > 1:
            result = self._do(front, command)
            assert isinstance(result, Refused) and result.problem is Problem.NOT_ACCEPTABLE, result
            return
        result = self._do(front, command, Step(leavers={jid}, changes_owners=self._owned()))
        assert isinstance(result, Subscribed) and (result.credit, result.group) == (credit, ""), result

    @rule(front=fronts, jid=jids, credit=st.integers(0, 5))
    def adjust(self, front: int, jid: Jid, credit: int) -> None:
        """P13: change the credit of a shared subscription; owners are not changed."""
        if self.ledger.kinds.get(jid) not in {SHARED, None}:
            return
        self.ledger.asked[jid] = credit
        result = self._do(front, SetSubscriptionOptions(self.node, jid, jid, "", credit))
        if jid in self.ledger.kinds:
            assert isinstance(result, Subscribed) and result.credit == credit, result
        else:
            assert isinstance(result, Refused) and result.problem is Problem.NOT_SUBSCRIBED, result

    @rule(front=fronts, jid=jids)
    def unsubscribe(self, front: int, jid: Jid) -> None:
        """Q34: unsubscribe and keep all locks."""
        known = jid in self.ledger.kinds
        result = self._do(
            front, Unsubscribe(self.node, jid, jid, ""), Step(leavers={jid}, changes_owners=self._owned())
        )
        assert isinstance(result, Unsubscribed if known else Refused), result

    @rule(front=fronts, jid=jids)
    def go(self, front: int, jid: Jid) -> None:
        """Q33: go offline, and lose everything."""
        self._do(front, Presence(jid, available=False), Step(leavers={jid}, changes_owners=True))
        assert not any(taken.jid == jid for taken in self.ledger.taken.values())

    @rule(
        front=fronts,
        which=st.integers(0, 20),
        verb=st.sampled_from((Retract, Retract, Unlock, Renew)),
        token=st.sampled_from(("right", "right", "right", "none", "old")),
        named=st.booleans(),
        stranger=st.sampled_from((False, False, False, True)),
        delay=st.sampled_from((0, 0, 20_000)),
    )
    def finish(
        self,
        *,
        front: int,
        which: int,
        verb: Any,
        token: str,
        named: bool,
        stranger: bool,
        delay: int,
    ) -> None:
        """Acknowledge, release or renew: it succeeds if, and only if, the sender holds the item under that token."""
        known = self._known()
        if not known:
            return
        number, name, right, jid = known[which % len(known)]
        if stranger:
            jid = JIDS[which % len(JIDS)]
        given = {"right": right, "none": None, "old": right - 1}[token]
        held = {
            at
            for (at, _), taken in self.ledger.taken.items()
            if (taken.jid, taken.item) == (jid, name) and given in {None, taken.token} and (not named or at == number)
        }
        # Which of several items of this name is meant, only a partition says.
        named = named or len(held) > 1
        held = {at for at in held if not named or at == number}
        more: dict[str, Any] = {"partition": number} if named else {}
        if verb is Unlock:
            more["delay_ms"] = delay
        command = verb(self.node, jid, name, given, **more)
        step = Step(finishing=set() if verb is Renew else {(at, name, jid) for at in held})
        result = self._do(front, command, step, at=next(iter(held), None))
        assert isinstance(result, (Retracted, Unlocked, Renewed) if held else Refused), (command, held, result)

    @rule(front=fronts, which=st.integers(0, 20))
    def delete(self, front: int, which: int) -> None:
        """Delete an item as its publisher: it succeeds unless somebody holds it."""
        places = sorted(self.ledger.items)
        if not places:
            return
        number, name = places[which % len(places)]
        held = any((at, taken.item) == (number, name) for (at, _), taken in self.ledger.taken.items())
        result = self._do(front, Retract(self.node, OWNER, name, partition=number), at=number)
        assert isinstance(result, Refused if held else Retracted), result

    # Owners.

    @rule(
        front=fronts,
        jid=jids,
        numbers=parts,
        group=groups,
        epoch=st.sampled_from((None, None, 0, 1, 2, 3, 5, 8)),
        credit=st.integers(1, 5),
    )
    def own(self, front: int, jid: Jid, numbers: list[int], group: str, epoch: int | None, credit: int) -> None:  # noqa: PLR0917
        """E26 to E28, EX13 to EX15: own partitions by name, all of them or none."""
        command = Subscribe(self.node, jid, jid, credit, partitions=tuple(numbers), group=group, epoch=epoch)
        before = self.seen
        expected = {
            number: granted_epoch(before.parts[number], jid, group, epoch, self.clock.now)
            for number in numbers
            if number < self.partitions
        }
        had = {n for n, part in enumerate(before.parts) if part.tenure and part.tenure.jid == jid}
        step = Step(leavers={jid}, changes_owners=True, stays={jid: had & set(numbers)})
        result = self._do(front, command, step)
        if max(numbers) >= self.partitions:
            assert isinstance(result, Refused) and result.problem is Problem.PARTITION_NOT_FOUND, result
        elif credit < len(numbers):
            assert isinstance(result, Refused) and result.problem is Problem.OPTIONS_INVALID, result
        elif None in expected.values():
            assert isinstance(result, Refused) and result.problem is Problem.PARTITION_OWNED, (result, expected)
        else:
            assert isinstance(result, Subscribed), (result, expected)
            for each in result.owned:
                wanted, same = expected[each.partition] or (None, None)
                part = before.parts[each.partition]
                # An owner that asks for less credit than it has locks is made owner anew.
                same = same and sum(held.jid == jid for held in part.locks.values()) <= each.credit
                assert each.epoch == wanted and (each.fence == part.fence if same else each.fence > part.fence), each
            assert {each.partition for each in result.owned} == set(numbers)
            return
        assert [(p.fence, p.tenure) for p in before.parts] == [(p.fence, p.tenure) for p in self.seen.parts]

    @rule(front=fronts, jid=jids, group=groups, credit=st.integers(1, 12))
    def join(self, front: int, jid: Jid, group: str, credit: int) -> None:
        """E10: become a member of a group, or change its options."""
        had = {n for n, part in enumerate(self.seen.parts) if part.tenure and part.tenure.jid == jid}
        # A frontend that died in between may have left a member that nobody knows.
        member = self.seen.members.get(jid) if self.ledger.kinds.get(jid) == MEMBER else None
        stays = {jid: had} if member is not None and member.group == group else {}
        command = Subscribe(self.node, jid, jid, credit, group=group)
        result = self._do(front, command, Step(leavers={jid}, changes_owners=True, stays=stays))
        assert isinstance(result, Subscribed) and result.group == group, result

    @rule(front=fronts, jid=jids)
    def keep_owning(self, front: int, jid: Jid) -> None:
        """EX16: a heartbeat returns all that its sender owns, and its fences."""
        kept = self._do(front, RenewOwnership(self.node, jid))
        mine = {(n, part.fence) for n, part in enumerate(self.seen.parts) if part.tenure and part.tenure.jid == jid}
        assert isinstance(kept, OwnershipsRenewed) and {(each.partition, each.fence) for each in kept.owned} == mine
        assert all(each.until_ms == self.clock.now + LOCK_MS for each in kept.owned)

    # The node, time, crashes.

    @rule(front=fronts, ms=st.sampled_from((1, 15_000, 35_000, 61_000)))
    def wait(self, front: int, ms: int) -> None:
        """Let time pass and sweep all partitions."""
        step = self._later(ms)
        visits = [(front, Sweep(self.node, number), None) for number in range(self.partitions)]
        self._all(step, visits)

    @rule(
        front=fronts,
        deaf=st.booleans(),
        turns=st.integers(0, 60),
        sent=st.lists(st.tuples(st.integers(0, 5), keys), max_size=4),
        finishing=st.lists(st.integers(0, 20), max_size=3),
        share=st.none() | st.tuples(jids, st.integers(0, 5)),
        join=st.none() | st.tuples(jids, groups, st.integers(1, 12)),
    )
    def die(
        self,
        *,
        front: int,
        deaf: bool,
        turns: int,
        sent: list[tuple[int, str]],
        finishing: list[int],
        share: tuple[Jid, int] | None,
        join: tuple[Jid, str, int] | None,
    ) -> None:
        """Kill a frontend in the middle of its work; another takes over, and a new one replaces it."""
        step = replace(self._within(2_000), vague=True)
        commands: list[Command] = []
        for number, key in sent:
            item = self._item(None, number % self.partitions, key)
            step.maybe[item.envelope] = key
            commands.append(item)
        mine = sorted(self.ledger.taken.items())
        for which in finishing if mine else ():
            (number, _), taken = mine[which % len(mine)]
            step.maybe_gone.add((number, taken.item))
            commands.append(Retract(self.node, taken.jid, taken.item, taken.token, partition=number))
        share = share if self.partitions == 1 else None
        if share:
            commands.append(Subscribe(self.node, share[0], share[0], share[1]))
        elif join:
            commands.append(Subscribe(self.node, join[0], join[0], join[2], group=join[1]))
        self._run(step, self._died(front, commands, turns, deaf=deaf))
        # A client without an answer asks again.
        if share:
            self.share((front + 1) % 3, share[0], 3)
        elif join:
            self.join((front + 1) % 3, join[0], join[1], 3)

    async def _died(self, front: int, commands: Sequence[Command], turns: int, *, deaf: bool) -> None:
        core, door = self.cores[front]
        door.deaf = deaf
        for command in commands:
            core.submit(command, lambda _result: None)
        for _ in range(turns):
            await asyncio.sleep(0)
        door.deaf = True
        link, core._server._link = core._server._link, Severed()
        await asyncio.sleep(0.005)
        for _ in range(3):
            for task in (
                *core._tasks,
                *(pipeline._running for pipeline in core.pipelines()),
                *(r._reading for r in core.routers()),
            ):
                if task is not None:
                    task.cancel()
            await asyncio.sleep(0)
        # What it has sent already takes effect; all others are idle.
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(left, timeout=1)
        await link.close()
        self.cores[front] = self._core()
        self.clock.now += 2_000
        await self.cores[(front + 1) % 3][0]._sweeper._take_over(DeadFrontend(core.frontend, 0.0))

    # Invariants of the whole node.

    @rule(front=fronts)
    def counts(self, front: int) -> None:
        """Check that the node has as many items as the ledger."""
        counted = self._do(front, Stats(self.node, OWNER))
        held = sum(len(part.locks) for part in self.seen.parts)
        assert isinstance(counted, Counted)
        assert (counted.waiting, counted.in_flight) == (len(self.ledger.items) - held, held)
        assert counted.kept <= self.keep * self.partitions

    @rule(front=fronts, number=st.integers(0, 5))
    def replay(self, front: int, number: int) -> None:
        """E2: the log has the present items and the kept ones of those that are done, whatever became of them."""
        at = number % self.partitions
        replay = self._do(front, Read(self.node, OWNER, at, "@earliest", 500))
        assert isinstance(replay, Replay) and not replay.gap
        offsets = [event.offset for event in replay.events]
        assert offsets == sorted(offsets)
        bodies = {event.envelope for event in replay.events}
        items = [item for (n, _), item in self.ledger.items.items() if n == at]
        assert {item.body for item in items} <= bodies
        there = {body for item in items for body in (item.body, item.parked, item.first)}
        assert len(bodies - there) <= self.keep

    # Helpers.

    def _item(self, name: str | None, number: int | None, key: str) -> Publish:
        self.bodies += 1
        envelope = codec.pack(Envelope(b"<x>%d</x>" % self.bodies))
        return Publish(self.node, OWNER, name, envelope, 8, partition=number, key=IDS[name] if name else key)

    def _home(self, command: Publish) -> int | None:
        """Return where an item goes."""
        chosen = command.key or command.item_id
        if command.partition is not None or not chosen:
            return command.partition
        return choose_by_hash(chosen, self.partitions)

    def _known(self) -> list[tuple[int, str, int, Jid]]:
        now = [(n, taken.item, taken.token, taken.jid) for (n, _), taken in sorted(self.ledger.taken.items())]
        self.tokens = [*self.tokens, *(one for one in now if one not in self.tokens)][-40:]
        return [*now, *now, *self.tokens[-6:]]

    def _later(self, ms: int) -> Step:
        """Let time pass; return what may come of it."""
        self.clock.now += ms
        return self._within(0)

    def _within(self, ms: int) -> Step:
        """Return what may come of so much time."""
        until = self.clock.now + ms
        over = {held.jid for part in self.seen.parts for held in part.locks.values() if held.deadline <= until}
        return Step(leavers=over, changes_owners=True)

    def _owned(self) -> bool:
        return bool(self.seen.members) or any(part.tenure for part in self.seen.parts)

    def _do(
        self,
        front: int,
        command: Command,
        step: Step | None = None,
        *,
        at: int | None = None,
    ) -> Any:
        return self._all(step or Step(), [(front, command, at)])[0]

    def _all(self, step: Step, commands: Sequence[tuple[int, Any, int | None]]) -> list[Any]:
        asked = [command for _, command, _ in commands]
        return self._run(step, self._answers(commands), *asked)  # type: ignore[no-any-return]

    async def _answers(self, commands: Sequence[tuple[int, Any, int | None]]) -> list[Any]:
        answers: dict[int, Any] = {}

        def reply(place: int, command: Any, at: int | None, result: Any) -> None:
            answers[place] = result
            if not self.ledger.step.maybe_gone:
                self.ledger.hear(partial(self.ledger.answered, command, at, result))

        for place, (front, command, at) in enumerate(commands):
            core = self.cores[front][0]
            if isinstance(command, Sweep):
                core.router(self.node).submit(command, partial(reply, place, command, at))
            else:
                core.submit(command, partial(reply, place, command, at))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(answers) < len(commands):  # noqa: ASYNC110  (whoever answers knows no event of ours)
                await asyncio.sleep(0.001)
        return [answers[place] for place in range(len(commands))]

    def _run(self, step: Step, work: Any, *asked: Command) -> Any:
        """Run a step, let it settle, and judge the result."""
        note(f"{self.ledger.number + 1}: {asked}")
        self.ledger.begin(step, *asked)
        result = self.runner.run(self._judged(work))
        note(f"   {result}")
        return result

    async def _judged(self, work: Any) -> Any:
        async with asyncio.timeout(PATIENCE_SECONDS):
            result = await work
        await self._rest()
        before, self.seen = self.seen, await look(self.observer, self.node)
        self.ledger.judge(before, self.seen, self.clock.now)
        return result

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not all(core._is_idle() for core, _ in self.cores):  # noqa: ASYNC110  (many small things of others)
                    await asyncio.sleep(0.001)
        except TimeoutError:
            never = [core._tasks for core, _ in self.cores]
            assert not never, f"never at rest: {never}"

    def teardown(self) -> None:
        """Delete the node and stop the cores."""
        if hasattr(self, "cores"):
            self.runner.run(self._ended())

    async def _ended(self) -> None:
        for _, door in self.cores:
            door.deaf = True
        await self.observer.ask(Delete(self.node, OWNER))
        for core, _ in [*self.cores, (self.observer, None)]:
            await core.stop()
        # Closed connections are gone a turn of the loop later.
        await asyncio.sleep(0.01)


@pytest.fixture
def machine(redis_cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[SpreadMachine]]:
    """Provide the empty cluster, and a clock."""
    clock = Clock()
    call = Server.write_call

    def at(self: Server, name: str, names: Sequence[str], *given: Any) -> Any:
        fixed, rows, shared = (*given, (), {})[:3]
        own, every = ({**some, "now": clock.now} if "now" in some else some for some in (fixed, shared))
        return call(self, name, names, own, rows, every)

    monkeypatch.setattr(Server, "write_call", at)
    with redis.RedisCluster("127.0.0.1", redis_cluster.nodes[0].port) as client:
        client.flushall(target_nodes="primaries")
    with asyncio.Runner() as runner:
        yield type("Machine", (SpreadMachine,), {"url": redis_cluster.url, "runner": runner, "clock": clock})


# A killed frontend leaves coroutines that it was about to begin.
pytestmark = pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited", "ignore:Exception ignored in. <coroutine"
)

CHECKS = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


# Endless work ends by limits of the machine's own. A limit for the test would strike while a failed history is being
# shrunk, in the middle of a turn of the loop that continues.
@pytest.mark.timeout(600)
def test_spread(machine: type[SpreadMachine]) -> None:
    """Guarantees 1 to 3 and EX11 to EX16, EX19 hold for whole nodes on a cluster, over 8 same histories of 30 steps."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=8, stateful_step_count=30, derandomize=True, deadline=None, suppress_health_check=CHECKS
        ),
    )


@pytest.mark.soak
def test_spread_for_long(machine: type[SpreadMachine]) -> None:
    """The same over 2,000 histories of 60 steps."""
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=2_000, stateful_step_count=60, deadline=None, suppress_health_check=CHECKS),
    )
