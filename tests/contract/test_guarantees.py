"""The guarantees under every mixture of publishers, workers, crashes and time that Hypothesis makes.

Each step runs one script on a real server and the same command on the model. The script's answer must be the model's,
and after each step every key must hold exactly what the model's state means.
"""

import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from broker.model.names import Partition
from broker.redis_core.operations.operation import subid, subids
from frontends.tools.servers.cluster import RedisCluster
from frontends.tools.servers.redis import RedisServer
from tests.contract.model import PLAIN, WEIGHTS, Asked, Model, Options, Outcome, Rate, Retry, written
from tests.contract.structure import Snapshots, compared, expected
from tests.lua.driver import T0, Answer, Queue, Runner

# Sender and the JID it subscribes: two resources of one person, one bare subscription, one with blanks in its resource.
WORKERS = (
    ("w@x/1", "w@x/1"),
    ("w@x/2", "w@x/2"),
    ("v@x/desk", "v@x"),
    ("u@x/two words", "u@x/two words"),
)
PUBLISHERS = ("alice@x", "bob@x", "w@x")
NAMES = ("a", "b", "c d", "0-1-1")

KEPT: tuple[dict[str, int], ...] = (
    {},
    {"keep_items": 3},
    {"keep_ms": 30_000},
    {"keep_bytes": 20},
    {"keep_ms": 30_000, "keep_items": 5},
)

RETRIES = (Retry(5_000), Retry(20_000, backoff=3, longest=70_000, jitter=0.5), Retry(500, backoff=1.5, jitter=1))

RATES = (Rate(1, 1_000), Rate(7, 60_000, 2))

workers = st.sampled_from(WORKERS)
frontends = st.integers(0, 1)
rarely = st.sampled_from((False, False, False, True))
stages = st.sampled_from(("right", "right", "right", "unacknowledged", "acknowledged", "assured", "deliver"))
lost = st.sampled_from((False, False, False, True))
tokens = st.sampled_from(("", "right", "right", "old"))
sendings = st.sampled_from(
    (("unacknowledged", ""), ("unacknowledged", "20"), ("acknowledged", ""), ("assured", ""), ("assured", "3"))
)
together = st.sampled_from(((), (), (1,), (1, 2), (0,)))
"""Which further locks an answer names, as steps from the first one; 0 is the first one again."""
requests = st.sampled_from(("", "r1", "r2"))
several = st.lists(st.tuples(st.integers(0, 20), tokens, requests), min_size=1, max_size=4)
"""The rows of one call: which item each is about, and with which token and id of the request."""
pauses = st.lists(st.sampled_from((0, 5_000, 61_000)), max_size=3)
"""How long nobody is there after each attempt to deliver that a crash ends."""
names = st.sampled_from(("", "", *NAMES, "of the service"))


class QueueMachine(RuleBasedStateMachine):
    """One queue, its workers and two frontends that may crash."""

    client: ClassVar["redis.Redis"]
    snapshots: ClassVar[Snapshots]

    @initialize(
        max_deliveries=st.sampled_from((0, 1, 2, 4)),
        dead_letters=st.booleans(),
        dedupe=st.sampled_from(("overwrite", "overwrite", "ignore")),
        node_full=st.sampled_from(("reject", "retract-oldest", "dead-letter-oldest")),
        max_items=st.sampled_from((3, 8, 100)),
        ordered=st.booleans(),
        keep=st.sampled_from(KEPT),
        retry=st.sampled_from((None, None, *RETRIES)),
        rate=st.sampled_from((None, None, *RATES)),
        max_in_flight=st.sampled_from((0, 0, 1, 3)),
        fair=st.sampled_from(("", "", "key", "publisher")),
        busy=st.booleans(),
    )
    def begin(
        self,
        *,
        max_deliveries: int,
        dead_letters: bool,
        dedupe: str,
        node_full: str,
        max_items: int,
        ordered: bool,
        keep: dict[str, int],
        retry: Retry | None,
        rate: Rate | None,
        max_in_flight: int,
        fair: str,
        busy: bool,
    ) -> None:
        """Open a queue, perhaps with work and workers, and the one for its dead letters."""
        self.options = Options(
            max_deliveries=max_deliveries,
            dead_letters=dead_letters,
            dedupe=dedupe,
            node_full=node_full,
            max_items=max_items,
            ordered=ordered,
            retry=retry,
            rate=rate,
            max_in_flight=max_in_flight,
            fair=fair,
            **keep,
        )
        self.model = Model(self.options, T0)
        incarnation = secrets.token_hex(6)
        runner = Runner(self.client, checked=False)
        self.queue = Queue(runner, Partition("jobs", incarnation))
        self.grave = Queue(runner, Partition("jobs/dead", incarnation))
        weights = [{"tenant": tenant, "weight": weight} for tenant, weight in WEIGHTS.items()] if fair else []
        self.queue.open(
            *weights,
            fair=fair,
            max_deliveries=max_deliveries,
            dead_letters="1" if dead_letters else "0",
            lock_ms=60_000,
            ordered="1" if ordered else "0",
            retry_delay=retry.rule if retry else "",
            limits=self.options.limits,
            **keep,
        )
        self.grave.open(max_deliveries=0, dead_letters="0")
        self.frontends = ["f0", "f1"]
        self.received = [0, 0]
        self.doubtful = [False, False]
        self.dead: list[str] = []
        self.lives = 1
        self.sent: dict[str, int] = {}
        self.reached: set[tuple[str, int]] = set()
        self.services_ids: list[str] = []
        self.bodies = 0
        self.holding: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        if busy:
            self.publish(frontend=0, by="alice@x", wanted=[(name, "", "{}/r 1") for name in NAMES[:3]], lost=False)
            for worker in WORKERS[:2]:
                self.subscribe(worker=worker, credit=2, sending=(PLAIN, ""), frontend=0, lost=False)

    # Publishers.

    @rule(
        frontend=frontends,
        by=st.sampled_from(PUBLISHERS),
        wanted=st.lists(
            st.tuples(names, st.sampled_from(("", "", "g", "h")), st.sampled_from(("", "", "{}/r 1"))),
            min_size=1,
            max_size=4,
        ),
        lost=lost,
    )
    def publish(self, *, frontend: int, by: str, wanted: list[tuple[str, str, str]], lost: bool) -> None:
        """Publish one or several items, with ids of the publisher's, the service's, or none; for some the end is wanted."""
        rows = []
        for name, key, reply in wanted:
            self.bodies += 1
            known = self.services_ids[-1] if self.services_ids else "0-2-0"
            item = known if name == "of the service" else name
            rows.append((item, by, f"body {self.bodies}", key, reply.format(by)))
        fixed = {
            "dedupe": self.options.dedupe,
            "dedupe_ms": self.options.dedupe_ms,
            "max_items": self.options.max_items,
            "node_full": self.options.node_full,
            "publish_rate": "",
        }
        lines = [
            {"item": name, "by": by, "body": body, "key": key, "once": "", "refused": ""}
            | {"hints": f"0 4 0 {reply}" if reply else ""}
            for name, by, body, key, reply in rows
        ]
        answer = self.call(frontend, "publish", lines, fixed)
        self.judge(frontend, answer, self.model.publish(self.frontends[frontend], rows), lost=lost)
        self.services_ids += [row[1] for row, (name, *_) in zip(answer.rows, rows, strict=True) if not name and row[1:]]

    @rule(which=st.integers(0, 20), owner=st.booleans(), frontend=frontends)
    def delete(self, *, which: int, owner: bool, frontend: int) -> None:
        """Delete an item as an owner or a publisher, which they may only while nobody holds it."""
        self.retract(("alice@x/home", "alice@x"), [(which, "", "")], frontend=frontend, lost=False, owner=owner)

    @rule(which=st.integers(0, 20), by=st.sampled_from(PUBLISHERS), owner=st.booleans(), frontend=frontends, lost=lost)
    def cancel(self, *, which: int, by: str, owner: bool, frontend: int, lost: bool) -> None:
        """Cancel an item as an owner or a publisher, whoever holds it."""
        name, jid = self.pick((f"{by}/1", f"{by}/1"), which)
        row = {"sender": jid, "owner": "1" if owner else "", "item": name, "request": "cancel"}
        answer = self.call(frontend, "cancel", [row])
        outcome = self.model.cancel(self.frontends[frontend], jid, name, "cancel", owner=owner)
        assert list(map(tuple, answer.notices)) == outcome.notices
        self.judge(frontend, answer, outcome, lost=lost)

    @rule()
    def purge(self) -> None:
        """Drop waiting items."""
        answer, (count, outcome) = self.queue.run("purge"), self.model.purge()
        assert answer.rows == [count] and answer.outbox == outcome.outbox

    # Workers.

    @rule(worker=workers, credit=st.integers(0, 4), sending=sendings, frontend=frontends, lost=lost)
    def subscribe(
        self, *, worker: tuple[str, str], credit: int, sending: tuple[str, str], frontend: int, lost: bool
    ) -> None:
        """Subscribe, or change the credit, the quality of service, or how many items share a stanza."""
        row = self.queue_row_subscribe(worker[1], credit, *sending)
        answer = self.call(frontend, "subscribe", [row])
        outcome = self.model.subscribe(self.frontends[frontend], worker[1], credit, *sending)
        self.judge(frontend, answer, outcome, lost=lost)

    @rule(worker=workers, release=st.booleans(), frontend=frontends, lost=lost)
    def unsubscribe(self, *, worker: tuple[str, str], release: bool, frontend: int, lost: bool) -> None:
        """Leave with all locks kept, or (unavailable) with all given back."""
        row = {"subid": subid(worker[1]), "release": "1" if release else "", "kept": "", "reason": ""}
        row |= {"lapsed": "", "told": "", "named": "", "which": "this", "group": ""}
        answer = self.call(frontend, "unsubscribe", [row])
        self.judge(
            frontend, answer, self.model.unsubscribe(self.frontends[frontend], worker[1], release=release), lost=lost
        )

    @rule(worker=workers, rows=several, together=st.booleans(), frontend=frontends, lost=lost)
    def acknowledge(
        self, *, worker: tuple[str, str], rows: list[tuple[int, str, str]], together: bool, frontend: int, lost: bool
    ) -> None:
        """Retract one or several items as a worker: the holder, one who was, or one who never was."""
        self.retract(worker, rows, frontend=frontend, lost=lost, owner=False, together=together)

    @rule(
        worker=workers,
        rows=several,
        delay=st.sampled_from((None, None, 0, 20_000)),
        dead_letter=st.sampled_from((False, False, True)),
        untried=st.booleans(),
        frontend=frontends,
        lost=lost,
    )
    def unlock(
        self,
        *,
        worker: tuple[str, str],
        rows: list[tuple[int, str, str]],
        delay: int | None,
        dead_letter: bool,
        untried: bool,
        frontend: int,
        lost: bool,
    ) -> None:
        """Give back one or several items, with hints or without."""
        asked = self.asked(worker, rows)
        hints = {"dead_letter": "1" if dead_letter else "", "untried": "1" if untried else ""}
        hints["delay_ms"] = "" if delay is None else str(delay)
        given = [self.queue.given_back(*row[:3], request=row[3], **hints) for row in asked]
        answer = self.call(frontend, "unlock", given)
        outcome = self.model.unlock(
            self.frontends[frontend], asked, delay_ms=delay, dead_letter=dead_letter, untried=untried
        )
        self.judge(frontend, answer, outcome, lost=lost)

    @rule(
        worker=workers, rows=several, progress=st.sampled_from(("", "", "0.5 half", "- n")), begun=st.sampled_from("01")
    )
    def renew(self, *, worker: tuple[str, str], rows: list[tuple[int, str, str]], progress: str, begun: str) -> None:
        """Renew one or several locks, and tell that their holder has begun, how far it is, or nothing."""
        asked = self.asked(worker, rows)
        hints = {"lock_ms": "", "progress": progress, "begun": begun}
        answer = self.queue.run("renew", *({**self.queue.holder(*row[:3]), **hints} for row in asked))
        outcomes = [self.model.renew(*row[:3], progress, begun=begun == "1") for row in asked]
        assert answer.words == [word for outcome in outcomes for word in outcome.words]

    @precondition(lambda self: any(item.lock for item in self.model.items.values()))
    @rule(
        which=st.integers(0, 20),
        more=together,
        forged=st.booleans(),
        stage=stages,
        gone=st.booleans(),
        frontend=frontends,
        lost=lost,
    )
    def bounce(
        self, *, which: int, more: tuple[int, ...], forged: bool, stage: str, gone: bool, frontend: int, lost: bool
    ) -> None:
        """Bounce a delivery, by its subscriber or by somebody else, in time or late."""
        row, what = self.answering(which, more, stage, forged=forged)
        answer = self.call(frontend, "bounce", [{**row, "subids": subids(what[0]), "gone": "1" if gone else ""}])
        self.judge(frontend, answer, self.model.bounce(self.frontends[frontend], *what, gone=gone), lost=lost)

    @precondition(lambda self: any(item.lock for item in self.model.items.values()))
    @rule(which=st.integers(0, 20), more=together, forged=rarely, stage=stages, frontend=frontends, lost=lost)
    def confirm(
        self, *, which: int, more: tuple[int, ...], forged: bool, stage: str, frontend: int, lost: bool
    ) -> None:
        """Confirm a delivery, by its receiver or by somebody else, in time, late or once more."""
        row, what = self.answering(which, more, stage, forged=forged)
        message = "7.m" if more else ""
        answer = self.call(frontend, "confirm", [{**row, "message": message}])
        self.judge(frontend, answer, self.model.confirm(self.frontends[frontend], *what, message), lost=lost)

    # Time, and what becomes due.

    @rule(ms=st.sampled_from((0, 1, 5_000, 20_000, 61_000)))
    def wait(self, ms: int) -> None:
        """Let time pass."""
        self.queue.now = self.grave.now = self.model.now = self.model.now + ms

    @rule(frontend=frontends, lost=lost)
    def expire(self, *, frontend: int, lost: bool) -> None:
        """Sweep the partition."""
        answer = self.call(frontend, "sweep", [])
        outcome = self.model.expire(self.frontends[frontend])
        assert sorted(map(tuple, answer.notices)) == sorted(outcome.notices)
        self.judge(frontend, answer, outcome, lost=lost)

    @rule(frontend=frontends)
    def beat(self, *, frontend: int) -> None:
        """Send a heartbeat: all that came before this time is sent, unless a reply is lost."""
        if not self.doubtful[frontend]:
            self.sent[self.frontends[frontend]] = self.model.now

    # Crashes.

    @rule(frontend=frontends)
    def crash(self, frontend: int) -> None:
        """Kill a frontend; a new one with a new name replaces it."""
        self.dead.append(self.frontends[frontend])
        self.lives += 1
        self.frontends[frontend] = f"f{self.lives}"
        self.received[frontend], self.doubtful[frontend] = 0, False

    @precondition(lambda self: self.dead)
    @rule(frontend=frontends)
    def take_over(self, frontend: int) -> None:
        """Take over deliveries of dead frontends; a second takeover finds nothing."""
        for dead in self.dead:
            self.search(frontend, dead, None)
            age_ms = self.model.now - self.sent.get(dead, 0)
            again = self.queue.run("take_over", frontend="late", previous=dead, age_ms=age_ms)
            assert again.deliveries == []
        self.dead.clear()

    # The outbox: dead letters, and ends of items.

    @precondition(lambda self: self.model.outbox)
    @rule(limit=st.sampled_from((1, 100)), pauses=pauses, ended=st.booleans(), frontend=frontends)
    def deliver(self, *, limit: int, pauses: list[int], ended: bool, frontend: int) -> None:
        """Deliver what is due, dead letters to their node, with crashes before the entries are ended or without."""
        for pause in pauses:
            self.attempt(frontend, limit)
            self.wait(pause)
        delivered = self.attempt(frontend, limit)
        if ended and delivered:
            self.end(*delivered)

    @precondition(lambda self: any(entry.attempts for entry in self.model.outbox.values()))
    @rule(which=st.integers(0, 20))
    def end_late(self, which: int) -> None:
        """End an entry that was delivered before, and once more."""
        delivered = sorted(name for name, entry in self.model.outbox.items() if entry.attempts)
        self.end(*[delivered[which % len(delivered)]] * 2)

    @precondition(lambda self: self.model.letters())
    @rule(which=st.integers(0, 20), superseded=st.booleans())
    def refuse(self, which: int, *, superseded: bool) -> None:
        """Let a dead letter go on to another node, unless somebody has tried once more since it was refused."""
        letters = self.model.letters()
        letter = letters[which % len(letters)]
        name = f"item/{written(letter.item.position)}"
        attempt = self.model.outbox[name].attempts - superseded
        words = self.queue.end(name, target="jobs/other", attempt=attempt).words
        assert words == ["superseded" if superseded else "ok"]
        letter.target = letter.target if superseded else "jobs/other"

    # Invariants after every step.

    @invariant()
    def keys_hold_what_the_model_means(self) -> None:
        """Guarantees 1 and 6: every accepted item is in exactly one place, and nothing is left of an item that is gone."""
        if not hasattr(self, "model"):
            return
        found = self.snapshots.read(self.queue)
        assert int(found["meta"]["token"]) >= self.model.token
        seen, meant = compared(found), expected(self.model)
        wrong = {name: (seen[name], meant[name]) for name in meant if seen[name] != meant[name]}
        assert not wrong, wrong
        self.guarantees(found)

    def guarantees(self, found: dict[str, Any]) -> None:
        """Check the guarantees against the keys alone, whatever the model says."""
        held = Counter(found["locks_by_subscriber"].values())
        assert found["inflight"].keys() == found["lock_deadlines"].keys()
        assert {member.rpartition(" ")[2] for member in found["locks_by_subscriber"]} == found["inflight"].keys()
        assert found["confirmations"].keys() == found["retries"].keys() <= found["inflight"].keys()
        standing = [found["inflight"], found["ready"], found["delayed"], found["outbox_items"]]
        assert sum(map(len, standing)) == len(set().union(*standing))
        leaving = {f"item/{place}" for place in found["outbox_items"]} | found["outbox_records"].keys()
        entries = found["outbox"].keys() | found["outbox_replies"].keys()
        assert found["outbox_attempts"].keys() <= entries == leaving
        assert found["ready_subscribers"].keys() | found["idle_subscribers"].keys() == found["subscribers"].keys()
        assert not found["ready_subscribers"].keys() & found["idle_subscribers"].keys()
        limits = {name: int(line.split(" ")[0]) for name, line in found["subscribers"].items()}
        assert all(held[name] < limits[name] for name in found["ready_subscribers"])
        assert all(held[name] >= limits[name] for name in found["idle_subscribers"])
        # Over the credit only after it was lowered (or after a resubscription counted old locks), and then only
        # falling.
        over = {name: held[name] for name in limits if held[name] > limits[name]}
        assert all(count <= self.holding[name] for name, count in over.items())
        self.holding = held

    def teardown(self) -> None:
        """Free the partitions, which shows that `delete_partition` leaves nothing but its mark."""
        if hasattr(self, "queue"):
            scan, told = self.queue.run("delete_partition").rows
            assert (scan, sorted(told)) == ("0", sorted(self.model.subscribers))
            assert self.queue.kept() == {"meta"}
            assert self.grave.stats()["waiting"] == len(self.accepted)
            self.grave.run("delete_partition")

    # Helpers.

    def attempt(self, frontend: int, limit: int) -> list[str]:
        """Read what is due in the outbox, and hand dead letters to their node, which takes each once; returns the entries."""
        grave = self.grave.partition.node
        answer = self.queue.run("read_outbox", frontend=self.frontends[frontend], limit=limit, dead_letters=grave)
        page, more = self.model.read_outbox(limit, grave)
        now, *entries = answer.rows
        assert (now, [tuple(each) for each in entries], answer.more) == (self.model.now, page, more)
        for entry, _attempt, *content in entries:
            if entry.startswith("item/"):
                row = {"item": f"letter {entry}", "by": content[1], "body": content[2], "ticket": entry}
                accepted = self.grave.run("accept_entry", {**row, "key": "", "hints": ""})
                self.accepted[entry] += accepted.words == ["ok"]
                assert self.accepted[entry] == 1
        return [entry for entry, *_ in entries]

    def end(self, *entries: str) -> None:
        """End entries that have arrived."""
        assert self.queue.end(*entries).words == ["ok"] * len(entries)
        for entry in entries:
            self.model.outbox.pop(entry, None)

    def queue_row_subscribe(self, jid: str, credit: int, qos: str, batch: str) -> dict[str, Any]:
        """Make the row of a subscribe."""
        row = {
            "subid": subid(jid),
            "jid": jid,
            "credit": credit,
            "qos": qos,
            "batch": batch or "1",
            "must": "",
            "lease": 0,
        }
        return row | {"scope": "", "named": "", "several": "", "selector": ""}

    def answering(
        self, which: int, more: tuple[int, ...], stage: str, *, forged: bool
    ) -> tuple[dict[str, Any], tuple[str, list[tuple[str, int]], str]]:
        """Choose deliveries to respond to; returns the row, and from whom, the positions and tokens, and the stage."""
        locks = [(item.position, item.lock) for item in self.model.items.values() if item.lock]
        first = locks[which % len(locks)][1]
        named = [(written(place), lock.token) for place, lock in (locks[(which + n) % len(locks)] for n in (0, *more))]
        asker = "mallory@x/1" if forged else next(sender for sender, jid in WORKERS if jid == first.jid)
        stage = first.stage if stage == "right" else stage
        row = {"sender": asker, "position": named[0][0], "token": named[0][1], "stage": stage}
        row["others"] = " ".join(f"{position} {token}" for position, token in named[1:])
        return row, (asker, named, stage)

    def retract(
        self,
        worker: tuple[str, str],
        rows: list[tuple[int, str, str]],
        *,
        frontend: int,
        lost: bool,
        owner: bool,
        together: bool = False,
    ) -> None:
        """Retract on the queue and in the model; rows that take effect together are about different items."""
        asked = self.asked(worker, rows)
        if together:
            asked = list({name: (jid, name, token, request) for jid, name, token, request in asked}.values())
        given = [self.queue.asked(*row[:3], owner="1" if owner else "", request=row[3]) for row in asked]
        answer = self.call(frontend, "retract", given, {"together": "1" if together else ""})
        if answer.words == ["refused"]:
            # The model tells only why.
            answer = replace(answer, rows=[[why] for _word, _number, why in answer.rows])
        outcome = self.model.retract(self.frontends[frontend], asked, owner=owner, together=together)
        self.judge(frontend, answer, outcome, lost=lost)

    def asked(self, worker: tuple[str, str], rows: list[tuple[int, str, str]]) -> list[Asked]:
        """Choose the items and tokens that rows are about."""
        found = []
        for which, token, request in rows:
            name, jid = self.pick(worker, which)
            found.append((jid, name, self.token(name, token), request))
        return found

    def pick(self, worker: tuple[str, str], which: int) -> tuple[str, str]:
        """Choose an item: mostly one that the worker holds, else any, else an unknown one."""
        mine = [item.name for item in self.model.held(worker[1])]
        live = sorted(self.model.items)
        known = [*mine, *mine, *live, *NAMES, *self.services_ids[-2:], "0-99999999999999999999999-0", "0-007-0"]
        return known[which % len(known)], worker[0]

    def token(self, name: str, kind: str) -> str:
        """Choose a token: the lock's, an old one, or none."""
        item = self.model.items.get(name)
        right = item.lock.token if item and item.lock else 7
        return {"": "", "right": str(right), "old": str(right - 1)}[kind]

    def call(self, frontend: int, name: str, rows: list[dict[str, Any]], fixed: dict[str, Any] | None = None) -> Answer:
        """Run a script as a frontend does: after a lost reply it searches first."""
        whose = self.frontends[frontend]
        if self.doubtful[frontend]:
            self.doubtful[frontend] = False
            self.search(frontend, whose, self.received[frontend])
        return self.queue.run(name, *rows, frontend=whose, **(fixed or {}))

    def search(self, frontend: int, previous: str, after: int | None) -> None:
        """Search for unsent deliveries, and compare the result with the model's."""
        # Of a dead one all is sent that it was handed up to its last heartbeat.
        age_ms = self.model.now - self.sent.get(previous, 0)
        since = (self.model.now - age_ms) * 1_000 if after is None else after
        expect = self.model.resend(self.frontends[frontend], previous, since)
        found, scan, upto = [], "0", ""
        while True:
            answer = self.queue.run(
                "take_over",
                frontend=self.frontends[frontend],
                previous=previous,
                age_ms=age_ms,
                after="" if after is None else after,
                upto=upto,
                scan=scan,
            )
            found += answer.deliveries
            scan, upto = answer.rows[0], answer.rows[1]
            if scan == "0":
                break
        assert sorted(expect) == sorted((d.jid, d.item, d.token, d.attempt, d.body, d.stage) for d in found)
        for delivery in found:
            self.model.renumbered(delivery.item, delivery.sequence)
        for _ in found:
            self.model.number()
        self.reached |= {(delivery.item, delivery.token) for delivery in found}
        self.received[frontend] = max(self.received[frontend], answer.token)

    def judge(self, frontend: int, answer: Answer, outcome: Outcome, *, lost: bool) -> None:
        """Compare a reply with the model's; then it reaches the frontend, which sends its deliveries, or it is lost."""
        assert answer.code == "ok"
        if outcome.words or answer.rows:
            assert answer.words == outcome.words
        assert list(map(tuple, answer.deliveries)) == outcome.deliveries
        assert answer.outbox == outcome.outbox
        assert answer.more == 0
        assert answer.token == self.model.token
        for delivery in answer.deliveries:
            assert delivery.item, delivery
        if lost:
            self.doubtful[frontend] = True
            return
        self.received[frontend] = answer.token
        self.reached |= {(delivery.item, delivery.token) for delivery in answer.deliveries}


@pytest.fixture(scope="module")
def machine(valkey: RedisServer) -> Iterator[type[QueueMachine]]:
    """Provide a server of its own while the machine runs."""
    with redis.Redis.from_url(valkey.url) as client:
        QueueMachine.client = client
        QueueMachine.snapshots = Snapshots(client)
        yield QueueMachine


CHECKS = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


def test_guarantees(machine: type[QueueMachine]) -> None:
    """Guarantees 1 to 3 and 6 hold over 50 histories of 50 steps, always the same ones (Q12, Q17, Q27, Q30, X1, X8)."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=50, stateful_step_count=50, derandomize=True, deadline=None, suppress_health_check=CHECKS
        ),
    )


def test_guarantees_on_a_cluster(redis_cluster: RedisCluster) -> None:
    """They hold on a cluster, where a queue and its dead letters may live on two masters."""
    with redis.RedisCluster("127.0.0.1", redis_cluster.nodes[0].port) as client:
        machine = type("ClusterMachine", (QueueMachine,), {"client": client, "snapshots": Snapshots(client)})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=12, stateful_step_count=50, derandomize=True, deadline=None, suppress_health_check=CHECKS
            ),
        )


@pytest.mark.soak
def test_guarantees_for_long(machine: type[QueueMachine]) -> None:
    """The same over 5,000 histories of 100 steps."""
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=5_000, stateful_step_count=100, deadline=None, suppress_health_check=CHECKS),
    )
