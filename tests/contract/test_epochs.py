"""Epochs and fences against a plain model: in any order of owners' commands, scripts decide as it does (EX11 to EX16)."""

from dataclasses import dataclass, field
from itertools import count
from typing import Final

import pytest
import redis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from broker.model.names import Partition
from frontends.tools.servers.redis import RedisServer
from tests.lua.driver import Answer, Queue, Runner

JIDS: Final = ("a@x/1", "b@x/1", "c@x/1")
SHARER: Final = "d@x/1"
GROUPS: Final = ("g", "h")
LOCK_MS: Final = 60_000
MOST: Final = 2**63 - 1

_names = count()

jids = st.sampled_from(JIDS)
groups = st.sampled_from(GROUPS)
epochs = st.none() | st.integers(0, 4) | st.sampled_from((2**53, 2**53 + 1, MOST - 1, MOST))


@dataclass
class Model:
    """What an operator would expect of one partition; `kept` is a group's epoch after its owner was lost, and until when."""

    owner: str = ""
    group: str = ""
    epoch: int = 0
    lease: int = 0
    fence: int = 0
    kept: dict[str, tuple[int, int]] = field(default_factory=dict)

    def lapse(self, now: int) -> bool:
        """Let time pass; return whether the owner's lease has ended, which resets its group's epoch."""
        lapsed = bool(self.owner) and self.lease <= now
        if lapsed:
            self.kept.pop(self.group, None)
            self.owner = ""
        return lapsed

    def recorded(self, group: str, now: int) -> int | None:
        """Return the epoch that an attach must exceed."""
        if self.owner and self.group == group:
            return self.epoch
        epoch, until = self.kept.get(group, (0, 0))
        return epoch if until > now else None

    def granted(self, jid: str, group: str, epoch: int | None, now: int) -> int | None:
        """Return the epoch under which an attach succeeds; None when it is refused."""
        before = self.recorded(group, now)
        if self.owner:
            if self.group != group:
                return None
            if epoch is None:
                return self.epoch if jid == self.owner else None
        if epoch is None:
            after = (before or 0) + 1
            return after if after <= MOST else None
        return epoch if before is None or epoch > before else None

    def met(self, jid: str, now: int) -> None:
        """Record a command of an owner: its lease is renewed when half of it is gone."""
        if jid == self.owner and self.lease - now <= LOCK_MS // 2:
            self.lease = now + LOCK_MS


class Ownership(RuleBasedStateMachine):
    """Three workers, two groups, one partition, and a clock."""

    server: RedisServer

    @initialize()
    def begin(self) -> None:
        """Open a partition without an owner."""
        self.client = redis.Redis.from_url(self.server.url)
        self.queue = Queue(Runner(self.client, checked=False), Partition(f"epochs{next(_names)}", "i1"))
        self.queue.open(lock_ms=LOCK_MS, max_deliveries=0)
        self.queue.subscribe(SHARER, 5)
        self.model = Model()
        self.numbers = count()
        self.tokens: dict[str, list[tuple[str, int]]] = {jid: [] for jid in (*JIDS, SHARER)}
        self.done: set[str] = set()

    def teardown(self) -> None:
        """Hang up."""
        self.client.close()

    @rule(jid=jids, group=groups, epoch=epochs)
    def attach(self, *, jid: str, group: str, epoch: int | None) -> None:
        """Attach: accepted or refused as the model says, under its epoch and a greater fence, with a notice to the loser."""
        now, model = self.queue.now, self.model
        before = (model.owner, model.epoch, model.fence)
        lapsed = model.lapse(now)
        granted = model.granted(jid, group, epoch, now)
        goes_on = granted is not None and model.owner == jid and epoch is None
        answer = self.took(self.queue.attach(jid, "" if epoch is None else epoch, group=group))
        if granted is None:
            assert answer.words == ["partition-owned"]
            assert [notice[5] for notice in answer.notices] == ["lapsed"] * lapsed
            return
        assert answer.rows[0][1] == str(granted)
        fence = answer.rows[0][2]
        lost = [notice for notice in answer.notices if notice[0] == "lost"]
        ended = [notice[1] for notice in answer.notices if notice[0] == "ended"]
        assert before[0] not in ended, "whoever loses all is told once"
        if goes_on:
            assert fence == model.fence and lost == ended == []
        else:
            assert fence > model.fence
            told = [(notice[1], int(notice[3]), notice[4], notice[5]) for notice in lost]
            assert told == ([(*before, "lapsed" if lapsed else "stolen")] if before[0] else [])
        model.kept.pop(group, None)
        model.owner, model.group, model.epoch, model.fence = jid, group, granted, fence
        model.lease = now + LOCK_MS
        assert answer.rows[0][3] == model.lease

    @rule(jid=jids, lost=st.booleans())
    def leave(self, *, jid: str, lost: bool) -> None:
        """Leave in order, which resets the epoch (E29), or by a lost connection, which keeps it for a while (EX11)."""
        model = self.model
        if model.owner == jid:
            model.kept.pop(model.group, None)
            if lost:
                model.kept[model.group] = (model.epoch, model.lease)
            model.owner = ""
        self.took(self.queue.unsubscribe(jid, release="1", kept="1" if lost else ""))

    @rule(jid=jids)
    def keep(self, *, jid: str) -> None:
        """Send the heartbeat: only the owner has something to renew (EX16)."""
        model = self.model
        owns = model.owner == jid
        if owns:
            model.lease = self.queue.now + LOCK_MS
        expected = ["ok", model.group, str(model.epoch), model.fence, model.lease, 10] if owns else ["not-subscribed"]
        assert self.queue.keep(jid).rows == [expected]

    @rule(ms=st.sampled_from((1, 29_999, 30_001, 60_000)))
    def wait(self, *, ms: int) -> None:
        """Let time pass and the sweep come."""
        self.queue.now += ms
        owner = self.model.owner
        lapsed = self.model.lapse(self.queue.now)
        answer = self.took(self.queue.expire())
        told = [(notice[1], notice[5]) for notice in answer.notices if notice[0] == "lost"]
        assert told == ([(owner, "lapsed")] if lapsed else [])

    @rule()
    def publish(self) -> None:
        """Publish an item."""
        item = f"i{next(self.numbers)}"
        self.took(self.queue.publish(item))

    @rule(jid=jids | st.just(SHARER), data=st.data())
    def retract(self, *, jid: str, data: st.DataObject) -> None:
        """Acknowledge by any token that the worker ever had: only one above the present fence counts (EX11)."""
        had = self.tokens[jid]
        if not had:
            return
        item, token = data.draw(st.sampled_from(had))
        self.model.met(jid, self.queue.now)
        answer = self.took(self.queue.retract(jid, item, token))
        if answer.words == ["ok"]:
            assert jid == (self.model.owner or SHARER) and token > self.model.fence
            assert item not in self.done
            self.done.add(item)

    def took(self, answer: Answer) -> Answer:
        """Record what was handed out: to the owner alone, under a token above its fence."""
        for delivery in answer.deliveries:
            self.tokens[delivery.jid].append((delivery.item, delivery.token))
        self.handed = answer.deliveries
        return answer

    @invariant()
    def exclusive(self) -> None:
        """E28: every lock is the owner's, under its fence; without an owner, a shared subscriber's."""
        if not hasattr(self, "queue"):
            return
        holder = self.model.owner or SHARER
        held = {jid: self.queue.locks(jid) for jid in self.tokens}
        for jid, locks in held.items():
            assert not locks or jid == holder
            assert all(token > self.model.fence for _item, token, _attempt, _deadline in locks)
        assert {delivery.jid for delivery in getattr(self, "handed", [])} <= {holder}


def test_epochs_and_fences(valkey: RedisServer) -> None:
    """EX11 to EX16, E27 to E29: any order of attaches, losses, heartbeats, sweeps and acknowledgements."""
    Ownership.server = valkey

    run_state_machine_as_test(
        Ownership, settings=settings(max_examples=15, stateful_step_count=30, derandomize=True, deadline=None)
    )


@pytest.mark.soak
def test_epochs_and_fences_for_long(valkey: RedisServer) -> None:
    """The same over a thousand histories."""
    Ownership.server = valkey
    run_state_machine_as_test(Ownership, settings=settings(max_examples=1_000, stateful_step_count=30, deadline=None))
