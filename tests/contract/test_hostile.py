"""QoS over a network that loses, repeats, delays and reorders, between frontends and a Redis that are killed at any point.

At the end of every history assured messages are in the queue exactly once, acknowledged ones at least once, and the
sender knows of each that failed (S5, S10, S11, S13, SX7, SX8, SX9, SX10).
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, TypeVar
from xml.etree import ElementTree as ET

import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from broker.model.commands import Browse, Declare, Retract
from broker.model.names import Jid
from broker.model.results import Browsed, Declared, Result, Retracted
from broker.redis_core import exactly_once
from broker.redis_core.core import RedisCore
from frontends.tools.servers.redis import RedisServer
from tests.contract.hostile import SERVICE, Frontend, Level, Message, Network
from tests.waiting import PATIENCE_SECONDS

T = TypeVar("T")

OWNER = Jid("owner@localhost/1")
FORGOTTEN = 40
"""Rounds of repeats after which an unfinished message must have been forgotten."""

LONG = 1000
"""A wait until nothing is under way."""

frontends = st.integers(0, 1)
fates = st.sampled_from(("arrives", "arrives", "arrives", "repeats", "repeats", "is lost"))
waits = st.sampled_from((0, 0, 1, 3, LONG, LONG))


class HostileMachine(RuleBasedStateMachine):
    """A sender, a network, two frontends, a Redis; and a worker that never fails."""

    server: ClassVar[RedisServer]

    @initialize()
    def begin(self) -> None:
        """Create an open node, and one to which the sender may not publish; a third does not exist."""
        self.runner = asyncio.Runner()
        self.network = Network()
        self.messages: list[Message] = []
        self.taken: Counter[int] = Counter()
        self.restarts = 0
        with redis.Redis.from_url(self.server.url) as client:
            client.flushall()
        self.runner.run(self._begin())

    async def _begin(self) -> None:
        self.frontends = [self._frontend(), self._frontend()]
        # Not one of those that die: it creates the nodes, and empties them.
        self.worker = self._frontend()
        for node, model in (("open", "open"), ("closed", "publishers")):
            options = {"pubsub#publish_model": (model,)}
            assert isinstance(await self.worker.core.ask(Declare(node, OWNER, options)), Declared)

    def _frontend(self) -> Frontend:
        return Frontend(self.server.url, self.network.to_sender.append)

    # The sender.

    @rule(
        level=st.sampled_from((Level.ASSURED, Level.ASSURED, Level.ASSURED, Level.ACKNOWLEDGED, Level.PLAIN)),
        node=st.sampled_from(("open", "open", "open", "open", "closed", "none")),
        reclaimed=st.booleans(),
    )
    def send(self, *, level: Level, node: str, reclaimed: bool) -> None:
        """Send a message, perhaps under the msgId of a delivered one (S14)."""
        number = len(self.messages)
        done = [message.msg_id for message in self.messages if message.step == "done" and message.msg_id]
        busy = {message.msg_id for message in self.messages if not message.over}
        free = [msg_id for msg_id in done if msg_id not in busy]
        msg_id = free[-1] if reclaimed and free else f"m{number}"
        message = Message(number, level, node, msg_id if level is Level.ASSURED else "")
        self.messages.append(message)
        self.network.to_service.append(message.stanza())

    @rule(which=st.integers(0, 50))
    def repeat(self, *, which: int) -> None:
        """Send the present step of a message again (S5, S12)."""
        for message in _chosen(self.unfinished, which):
            self.network.to_service.append(message.stanza())

    @property
    def unfinished(self) -> list[Message]:
        """The messages that the sender has to complete."""
        return [message for message in self.messages if not message.over]

    # The network.

    @rule(which=st.integers(0, 50), frontend=frontends, fate=fates, then=waits)
    def ask(self, *, which: int, frontend: int, fate: str, then: int) -> None:
        """Deliver any request to either frontend, or lose it, or keep a copy for later."""
        for stanza in _chosen(self.network.to_service, which):
            if fate != "repeats":
                self.network.to_service.remove(stanza)
            if fate != "is lost":
                self._bring(stanza, self.frontends[frontend])
        self.runner.run(self._wait(then))

    @rule(which=st.integers(0, 50), both=st.booleans(), fuse=st.sampled_from((-1, -1, 2, 3, 4)), then=waits)
    def deliver(self, *, which: int, both: bool, fuse: int, then: int) -> None:
        """Deliver the deciding request to a frontend, or to both at the same time; they may die of it."""
        for message in _chosen([message for message in self.messages if message.step == "deliver"], which):
            for frontend in self.frontends if both else self.frontends[which % 2 :][:1]:
                frontend.fuse, frontend.before = fuse, False
                self._bring(message.stanza(), frontend)
        self.runner.run(self._wait(then))

    def _bring(self, stanza: bytes, frontend: Frontend) -> None:
        number = int((ET.fromstring(stanza).get("id") or "").partition("-")[0])
        self.messages[number].copies += 1
        self.network.brought.append(stanza)
        self.runner.run(self._receive(frontend, stanza))

    async def _receive(self, frontend: Frontend, stanza: bytes) -> None:
        frontend.receive(stanza)

    @rule(which=st.integers(0, 50), fate=fates)
    def answer(self, *, which: int, fate: str) -> None:
        """Deliver any answer to the sender, or lose it, or keep a copy for later."""
        for stanza in _chosen(self.network.to_sender, which):
            if fate != "repeats":
                self.network.to_sender.remove(stanza)
            if fate != "is lost":
                self._hear(stanza)

    def _hear(self, stanza: bytes) -> None:
        reply = ET.fromstring(stanza)
        number, _, step = (reply.get("id") or "").partition("-")
        assert reply.get("from", "").endswith(f"@{SERVICE}")
        self.messages[int(number)].hear(step, reply)

    # The frontends, Redis and the worker.

    @rule(then=waits)
    def wait(self, *, then: int) -> None:
        """Let the frontends work for a while, so that their work may be at any point."""
        self.runner.run(self._wait(then))

    async def _wait(self, milliseconds: int) -> None:
        if milliseconds == LONG:
            await self._settle()
        elif milliseconds:
            await asyncio.sleep(milliseconds / 1000)

    async def _settle(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not all(frontend.quiet for frontend in self.frontends):  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    @rule(frontend=frontends, fuse=st.integers(0, 5), before=st.booleans())
    def doom(self, *, frontend: int, fuse: int, before: bool) -> None:
        """Let a frontend die at one of its next exchanges with Redis, its request unsent or the reply lost; 0: at once.

        A dead one is replaced.
        """
        if fuse and self.frontends[frontend].alive:
            self.frontends[frontend].fuse, self.frontends[frontend].before = fuse, before
        else:
            self.runner.run(self._replace(frontend))

    async def _replace(self, frontend: int) -> None:
        await self.frontends[frontend].end()
        self.frontends[frontend] = self._frontend()

    @rule(frontend=frontends)
    def look_round(self, *, frontend: int) -> None:
        """Let a frontend finish what others may have begun."""
        alive = self.frontends[frontend]
        if alive.alive:
            self.runner.run(self._look_round(alive))

    async def _look_round(self, frontend: Frontend) -> None:
        frontend.core.background(frontend.core._handlers.exactly_once.finish)

    @rule(chance=st.integers(0, 4))
    def kill_redis(self, *, chance: int) -> None:
        """Kill Redis in the middle of everything, now and then; it comes back with all that it has confirmed."""
        if chance == 0:
            self.restarts += 1
            self.server.kill()
            self.server.start()

    @rule()
    def work(self) -> None:
        """Take everything out of the queue: a duplicate cannot hide behind its id."""
        self.runner.run(self._work(self.worker.core))

    async def _work(self, core: RedisCore) -> None:
        browsed = await self._surely(core, Browse("open", OWNER, (), 500), Browsed)
        assert isinstance(browsed, Browsed)
        for item in browsed.items:
            number = int(item.envelope.partition(b"n='")[2].partition(b"'")[0])
            self.taken[number] += 1
            await self._surely(core, Retract("open", OWNER, item.item_id), Retracted)
        assert isinstance(await self._surely(core, Browse("closed", OWNER, (), 1), Browsed), Browsed)

    async def _surely(self, core: RedisCore, command: Browse | Retract, wanted: type[Result]) -> Result:
        """Repeat until it succeeds: Redis may just have come back."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not isinstance(result := await core.ask(command), wanted):
                pass
        return result

    # The end.

    def teardown(self) -> None:
        """Let the network heal and the sender finish; then count."""
        if not hasattr(self, "runner"):
            return
        try:
            self._heal()
            self._judge()
            self._echo()
            self._judge()
        finally:
            self.runner.run(self._end())
            self.runner.close()

    def _heal(self) -> None:
        self.work()
        for frontend in (0, 1):
            self.runner.run(self._replace(frontend))
        late = [*self.network.to_service]
        self.network.to_service.clear()
        for n, stanza in enumerate(late):
            self._bring(stanza, self.frontends[n % 2])
        for n in range(FORGOTTEN):
            self.runner.run(self._settle())
            for stanza in self.network.to_sender:
                self._hear(stanza)
            self.network.to_sender.clear()
            for message in self.unfinished:
                self._bring(message.stanza(), self.frontends[n % 2])
        self.runner.run(self._settle())
        for alive in self.frontends:
            self.runner.run(self._look_round(alive))
            self.runner.run(self._settle())
        self.work()

    def _echo(self) -> None:
        """Send all that ever was on the network once more, in its order: all must be recognised as copies."""
        for n, stanza in enumerate([*self.network.brought]):
            self._bring(stanza, self.frontends[n % 2])
            self.runner.run(self._settle())
        self.work()

    def _judge(self) -> None:
        assert self.unfinished == []
        for message in self.messages:
            times = self.taken[message.number]
            if message.level is Level.PLAIN:
                assert times <= message.copies, message
            elif message.node != "open":
                assert (message.step, times) == ("failed", 0), message
            elif message.level is Level.ASSURED:
                assert (message.step, times) == ("done", 1), message
            else:
                assert message.step == "done" and 1 <= times <= message.copies, message

    async def _end(self) -> None:
        for frontend in (*self.frontends, self.worker):
            await frontend.end()


def _chosen(among: list[T], which: int) -> list[T]:
    """Return one of them by number; none when there is none. What a history draws must not depend on its outcome."""
    return [among[which % len(among)]] if among else []


# No shrinking: the outcome of a history depends on the clock too, so a shorter failing one would be found by chance.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
CHECKS = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[HostileMachine]]:
    """Provide a Redis that keeps all that it has answered."""
    # Every claim counts as late: whoever looks for unfinished ones competes with whoever claimed them.
    monkeypatch.setattr(exactly_once, "LATE_MS", 0)
    with RedisServer(tmp_path / "redis", options={"appendonly": "yes", "appendfsync": "always"}) as server:
        HostileMachine.server = server
        yield HostileMachine


def _play(machine: type[HostileMachine], histories: int, steps: int, *, same: bool = False) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=steps,
            derandomize=same,
            deadline=None,
            phases=PHASES,
            suppress_health_check=CHECKS,
        ),
    )


@pytest.mark.timeout(600)
def test_hostile_network(machine: type[HostileMachine]) -> None:
    """S5, S6, S9 to S13: each level keeps its promise over 40 histories, always the same ones."""
    _play(machine, 40, 20, same=True)


@pytest.mark.soak
def test_hostile_network_for_long(machine: type[HostileMachine]) -> None:
    """The same over 500 histories of 80 steps."""
    _play(machine, 500, 80)
