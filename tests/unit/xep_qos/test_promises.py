"""The guarantees of a sender, whatever the network, the receiver's memory and its own restarts do: a Hypothesis state machine."""

import asyncio
from collections.abc import Awaitable, Coroutine
from copy import deepcopy
from typing import Any, Final
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stanzaq.xep_qos import MemoryOutbox, Refused, Step, Undelivered
from tests.unit.xep_qos.receiver import REFUSED, REMEMBERED, Receiver
from tests.unit.xep_qos.stream import PEER, StillLoop, Stream, error

_TRIES: Final = 4
_ROUNDS: Final = 200
_PASSES: Final = 600.0
"""How long the network may keep a stanza: less than receivers remember, or nothing could be promised."""


class Sending(RuleBasedStateMachine):
    """A sender, a network with stanzas in it, and a receiver; each rule is one thing that may happen."""

    def __init__(self) -> None:
        """Begin with nothing sent."""
        super().__init__()
        self.outbox = MemoryOutbox()
        self.receiver = Receiver()
        # What is on its way, with the time at which it was sent: requests, and answers.
        self.there: list[tuple[Element, float]] = []
        self.back: list[tuple[Element, float]] = []
        self.doubled: set[str | None] = set()
        self.sent: list[tuple[Step, bool]] = []
        self.told: dict[str, Undelivered | None] = {}
        self.tasks: list[asyncio.Task[None]] = []

    @initialize(step=st.sampled_from([Step.ACKNOWLEDGED, Step.ASSURED]), good=st.booleans())
    def begin(self, step: Step, *, good: bool) -> None:
        """Have something to send from the start."""
        self.loop = StillLoop()
        self.stream = Stream(self.loop, self.outbox, tries=_TRIES, remembered=REMEMBERED)
        self.stream.bind()
        self.send(step, good=good)

    @precondition(lambda self: len(self.sent) < 4)
    @rule(step=st.sampled_from([Step.ACKNOWLEDGED, Step.ASSURED]), good=st.booleans())
    def send(self, step: Step, *, good: bool) -> None:
        """Send a message that the receiver will take or refuse."""
        payload = Element("{urn:x}job" if good else REFUSED)
        payload.text = str(len(self.sent))
        self.sent.append((step, good))
        qos = self.stream.qos
        work = qos.send_assured if step is Step.ASSURED else qos.send_acknowledged
        self._start(self._tell(payload.text, work(payload, PEER)))

    @precondition(lambda self: self.there)
    @rule(pick=st.integers(0), twice=st.booleans())
    def arrive(self, pick: int, *, twice: bool) -> None:
        """Let any request arrive, and perhaps stay on its way as a copy."""
        request = self._pick(self.there, pick, keep=twice)
        if twice:
            self.doubled.add(request.get("id"))
        self.back.append((self.receiver.answer(request, self.loop.now), self.loop.now))

    @precondition(lambda self: self.there)
    @rule(pick=st.integers(0))
    def bounce(self, pick: int) -> None:
        """Let a server on the way refuse a request, which the receiver never sees."""
        request, _ = self.there[pick % len(self.there)]
        # One copy that a server refuses, of a stanza that the network doubled, is not the sender's concern.
        if request.get("id") not in self.doubled:
            self.there.pop(pick % len(self.there))
            self.back.append((error(request, "auth", "forbidden"), self.loop.now))

    @precondition(lambda self: self.there)
    @rule(pick=st.integers(0))
    def busy(self, pick: int) -> None:
        """Let the receiver ask for patience."""
        request = self._pick(self.there, pick)
        self.back.append((error(request, "wait", "resource-constraint"), self.loop.now))

    @precondition(lambda self: self.back)
    @rule(pick=st.integers(0), twice=st.booleans())
    def return_(self, pick: int, *, twice: bool) -> None:
        """Let any answer arrive, and perhaps stay on its way as a copy."""
        self.stream.hear(self._pick(self.back, pick, keep=twice))
        self._gather()

    @precondition(lambda self: self.there or self.back)
    @rule(pick=st.integers(0))
    def lose(self, pick: int) -> None:
        """Lose a stanza."""
        self._pick(self.there or self.back, pick)

    @rule(seconds=st.floats(0.5, 120))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._advance(seconds)

    @rule()
    def reconnect(self) -> None:
        """Lose the connection and make it again; what was on its way stays there."""
        self.stream.lose()
        self.stream.bind()
        self._settle()

    @rule()
    def restart(self) -> None:
        """Kill the sender, and start another with its outbox."""
        self._die()
        self._resume()

    @rule()
    def sleep(self) -> None:
        """Switch the sender off until nobody remembers what it sent."""
        self._die()
        self._advance(2 * REMEMBERED)
        self._resume()

    @rule()
    def forget(self) -> None:
        """Let the receiver lose what it holds (SX8)."""
        self.receiver.lose_held()

    @invariant()
    def never_twice(self) -> None:
        """Deliver no assured message twice."""
        for number, (step, _) in enumerate(self.sent):
            if step is Step.ASSURED:
                assert self.receiver.delivered[str(number)] <= 1

    def teardown(self) -> None:
        """Let everything complete on a working network, and compare the reports with what was done."""
        try:
            for _round in range(_ROUNDS):
                while self.there:
                    self.arrive(0, twice=False)
                while self.back:
                    self.return_(0, twice=False)
                if all(task.done() for task in self.tasks) and not self.there:
                    break
                self._advance(5)
            assert self.outbox.pending() == []
            assert sorted(self.told) == [str(number) for number in range(len(self.sent))]
            for number, (step, good) in enumerate(self.sent):
                self._check(step, self.told[str(number)], self.receiver.delivered[str(number)], good=good)
        finally:
            self._die()
            self.loop.close()
            asyncio.set_event_loop(None)

    def _check(self, step: Step, told: Undelivered | None, delivered: int, *, good: bool) -> None:
        if not good:
            assert told is not None
        if told is None:
            assert delivered == 1 if step is Step.ASSURED else delivered >= 1
        # A receiver that lost the message twice may yet get late copies of both requests.
        elif isinstance(told, Refused) and told.condition != "item-not-found":
            assert delivered == 0

    def _pick(self, network: list[tuple[Element, float]], pick: int, *, keep: bool = False) -> Element:
        at = pick % len(network)
        stanza, _ = network[at] if keep else network.pop(at)
        return deepcopy(stanza)

    def _advance(self, seconds: float) -> None:
        self.loop.now += seconds
        for network in (self.there, self.back):
            network[:] = [entry for entry in network if self.loop.now - entry[1] <= _PASSES]
        self._settle()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(self.loop.create_task(work))
        self._settle()

    async def _tell(self, name: str, work: Awaitable[None]) -> None:
        try:
            await work
        except Undelivered as fault:
            self.told[name] = fault
        else:
            self.told[name] = None

    def _die(self) -> None:
        for task in self.tasks:
            task.cancel()
        self._settle()
        self.stream.end()

    def _resume(self) -> None:
        self.stream.qos = self.stream.begin(self.outbox, tries=_TRIES, remembered=REMEMBERED)
        names = {sent.msg_id: ET.fromstring(sent.message)[0].text or "" for sent in self.outbox.pending()}

        async def go_on() -> None:
            endings = self.stream.qos.resume()
            await asyncio.gather(*(self._tell(names[msg_id], ending) for msg_id, ending in endings.items()))

        self._start(go_on())

    def _settle(self) -> None:
        self.loop.settle()
        self._gather()

    def _gather(self) -> None:
        self.there.extend((request, self.loop.now) for request in self.stream.sent)
        self.stream.sent.clear()


def test_promises() -> None:
    """At least once, exactly once, and every failure told, over 60 histories of 40 steps."""
    run_state_machine_as_test(Sending, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_promises_for_long() -> None:
    """The same over 600 histories of 80 steps."""
    run_state_machine_as_test(Sending, settings=settings(max_examples=600, stateful_step_count=80, deadline=None))
