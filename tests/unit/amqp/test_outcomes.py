"""Outcomes of workers and locks: outcomes become commands, ends are repeated, locks are renewed."""

import asyncio
import time
from collections.abc import Callable

import pytest

from broker import codec
from broker.model.commands import Command, Renew, Retract, Unlock
from broker.model.items.items import Envelope
from broker.model.names import Jid, Partition
from broker.model.problems import Problem
from broker.model.results import HeldItem, Refused, Renewed, Result, Retracted
from frontends.amqp.links.lock_keeper import LockKeeper
from frontends.amqp.messages import deliveries, message
from frontends.amqp.messages.lock_ref import LockRef
from frontends.amqp.protocol import types
from frontends.amqp.protocol.outcomes import Outcome, OutcomeKind

WORKER = Jid("me@x/lease-0")
LOCK = LockRef(WORKER, Partition("jobs", "8e71964d", 3), "i", 7, 10_000)


class Core:
    """Answers commands as told, and records them."""

    def __init__(self, *answers: Result) -> None:
        """Give these answers, the last one for ever."""
        self.answers = list(answers)
        self.asked: list[Command] = []

    def submit(self, command: Command, reply: Callable[[Result], None]) -> None:
        """Take a command."""
        self.asked.append(command)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        asyncio.get_running_loop().call_soon(reply, answer)

    async def ask(self, command: Command) -> Result:
        """Fail: nobody here uses it."""
        raise NotImplementedError(command)


@pytest.mark.parametrize(
    ("outcome", "command"),
    [
        (Outcome(OutcomeKind.ACCEPTED), Retract("jobs", WORKER, "i", 7, partition=3)),
        (Outcome(OutcomeKind.RELEASED), Unlock("jobs", WORKER, "i", 7, partition=3, untried=True)),
        (Outcome(OutcomeKind.MODIFIED), Unlock("jobs", WORKER, "i", 7, partition=3, untried=True)),
        (Outcome(OutcomeKind.MODIFIED, failed=True), Unlock("jobs", WORKER, "i", 7, partition=3)),
        (
            Outcome(OutcomeKind.REJECTED, "a\x00b\n" + "c" * 300),
            Unlock("jobs", WORKER, "i", 7, reason="a b " + "c" * 196, dead_letter=True, partition=3),
        ),
    ],
)
def test_outcomes(outcome: Outcome, command: Command) -> None:
    """Part 3 §3.4: each terminal state is one command of the core; a peer's reason is one line."""
    assert LOCK.end(outcome) == command


def test_header() -> None:
    """§3.2.1: the publisher's header stays; the service sets the delivery count and the holder."""
    sent = types.section(message.HEADER, types.write_list([b"\x41", b"\x50\x07", b"\x40", b"\x41", b"\x43"]))
    envelope = message.parse(sent + types.section(message.VALUE, types.string("x"))).envelope
    for raw, attempt, untried, expected in (
        (envelope, 2, 1, [b"\x41", b"\x50\x07", b"\x40", b"\x42", b"\x70\x00\x00\x00\x01"]),
        (codec.pack(Envelope(b"x")), 1, 1, [b"\x40"] * 3 + [b"\x42", b"\x70\x00\x00\x00\x00"]),
        (codec.pack(Envelope(b"x")), 1, 0, [b"\x40"] * 3 + [b"\x41", b"\x70\x00\x00\x00\x00"]),
    ):
        item = HeldItem(LOCK.partition, "i", 7, attempt, 5, Jid("p@x"), raw, "k", 1, untried)
        written = deliveries.message(item)
        first, second, third, *_rest = message.sections(written)
        assert (first.code, second.code, third.code) == (message.HEADER, message.DELIVERY, message.MESSAGE)
        fields = [written[at : types.end_of_value(written, at)] for at in types.items(written, first.value)]
        assert fields == expected


async def test_repeated() -> None:
    """Q27: an end is repeated while Redis is away; a repeat of a successful one is no failure, unless certainty is required."""
    away, gone = Refused(Problem.TIMED_OUT), Refused(Problem.ITEM_NOT_FOUND)
    for answers, certain, expected in (
        ((away, Retracted(None)), False, None),
        ((away, gone), False, None),
        ((away, gone), True, gone),
        ((gone,), False, gone),
    ):
        core, heard = Core(*answers), asyncio.get_running_loop().create_future()
        LockKeeper(core, lambda: None).end(LOCK.acknowledge(), heard.set_result, certain=certain)
        assert await asyncio.wait_for(heard, 20) == expected and len(core.asked) == len(answers)


async def test_renewed() -> None:
    """Q35: a lock is renewed before its end, and again; a lost one is dropped."""
    ahead_ms = 10**12
    deadline = int(time.monotonic() * 1000) + ahead_ms + 1_000
    core, changes = Core(Refused(Problem.UNAVAILABLE), Renewed(7, deadline + 500), Refused(Problem.LOCK_LOST)), []
    holding = LockKeeper(core, lambda: changes.append(True))
    holding.set_redis_time(int(time.monotonic() * 1000) + ahead_ms)
    holding.add(1, LOCK, deadline)
    assert 0 < holding.due_seconds < 1
    ends = time.monotonic() + 20
    while len(holding):
        assert time.monotonic() < ends
        await asyncio.sleep(min(0.5, max(0.01, holding.due_seconds)))
        holding.renew()
    assert core.asked == [Renew("jobs", WORKER, "i", 7, 3, 10_000)] * 3 and len(changes) == 4
    assert holding.pop(1) is None
