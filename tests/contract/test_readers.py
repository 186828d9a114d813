"""Readers of one log under every mixture of publishes, commits, lost replies, takeovers and trims that Hypothesis makes.

A reader never gets more than its credit, first receives entries in the order of the log, and in the end has all of them
except those reported as lost (E1, E2, EX7, X8).
"""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.model.names import Partition
from frontends.tools.servers.redis import RedisServer
from tests.lua.driver import Answer, Delivered, Queue, Runner

READERS = {"r1@x/a": 1, "r2@x/a": 3, "r3@x": 50}

steps = st.lists(
    st.tuples(
        st.sampled_from(("publish", "publish", "commit", "commit", "expire", "crash")),
        st.sampled_from(tuple(READERS)),
        st.integers(1, 5),
        st.sampled_from((False, False, False, True)),
    ),
    max_size=40,
)


@pytest.fixture(scope="module")
def client(valkey: RedisServer) -> Iterator["redis.Redis"]:
    """Give a client of a server."""
    with redis.Redis.from_url(valkey.url) as found:
        yield found


class Play:
    """One log and its readers; each frontend that crashes is followed by another."""

    def __init__(self, client: "redis.Redis", keep: int) -> None:
        """Open a log that keeps so many entries, and let all begin to read."""
        self.queue = Queue(Runner(client, checked=False), Partition("log", secrets.token_hex(6)))
        self.queue.open(queueing="0", keep_items=keep)
        self.published: list[str] = []
        self.received: dict[str, list[Delivered]] = {jid: [] for jid in READERS}
        self.first: dict[str, list[str]] = {jid: [] for jid in READERS}
        self.gaps: dict[str, int] = dict.fromkeys(READERS, 0)
        self.lives = 1
        for jid, credit in READERS.items():
            self.queue.follow(jid, credit)

    def hear(self, answer: Answer, *, lost: bool) -> None:
        """Deliver what a script handed out to the readers, or lose it with its frontend."""
        assert answer.code == "ok"
        for subid, credit in self.outstanding().items():
            assert credit <= READERS[subid]
        if lost:
            self.crash()
            return
        for one in answer.deliveries:
            self.received[one.jid].append(one)
            if one.position not in self.first[one.jid]:
                self.first[one.jid].append(one.position)
            self.gaps[one.jid] += one.stage == "gap"

    def outstanding(self) -> dict[str, int]:
        """Count the uncommitted entries of each reader, by its JID."""
        found: Any = self.queue.client.zrange(self.queue.key("uncommitted"), 0, -1)
        lines: Any = self.queue.client.hgetall(self.queue.key("subscribers"))
        jids = {subid: line.split(b" ", 3)[3].decode() for subid, line in lines.items()}
        counts = dict.fromkeys(READERS, 0)
        for member in found:
            counts[jids[member.split(b" ")[0]]] += 1
        return counts

    def crash(self) -> None:
        """Let a frontend die, and the next take over its unsent deliveries."""
        dead = self.queue.frontend
        self.lives += 1
        self.queue.frontend = f"f{self.lives}"
        scan, upto = "0", ""
        while True:
            answer = self.queue.run("take_over", previous=dead, scan=scan, upto=upto)
            self.hear(answer, lost=False)
            scan, upto = answer.rows
            if scan == "0":
                return

    def step(self, what: str, jid: str, count: int, *, lost: bool) -> None:
        """Take one step."""
        if what == "publish":
            names = [f"i{len(self.published) + number}" for number in range(count)]
            self.published += names
            self.queue.now += 1
            self.hear(self.queue.publish(*names), lost=lost)
        elif what == "commit" and self.received[jid]:
            mine = self.received[jid]
            self.hear(self.queue.commit(jid, mine[max(0, len(mine) - count)].position), lost=lost)
        elif what == "expire":
            self.hear(self.queue.expire(), lost=lost)
        elif what == "crash":
            self.crash()

    def end(self) -> None:
        """Let all commit what they have until nothing more comes."""
        for _ in range(2 * len(self.published) + 2):
            self.crash()
            for jid, mine in self.received.items():
                if mine:
                    self.hear(self.queue.commit(jid, max(mine, key=place).position), lost=False)
        self.hear(self.queue.expire(), lost=False)


def place(one: Delivered) -> tuple[int, int]:
    """Return the position of an entry."""
    ms, _, seq = one.position.partition("-")
    return int(ms), int(seq)


def _run(client: "redis.Redis", taken: list[tuple[str, str, int, bool]], keep: int) -> None:
    play = Play(client, keep)
    for what, jid, count, lost in taken:
        play.step(what, jid, count, lost=lost)
    play.end()
    for jid, positions in play.first.items():
        order = [tuple(map(int, position.split("-"))) for position in positions]
        assert order == sorted(order), jid
        items = {one.item for one in play.received[jid]}
        missing = [name for name in play.published if name not in items]
        assert not missing or play.gaps[jid], (jid, missing)
        assert keep == 4 or not missing
    assert not any(play.outstanding().values())
    play.queue.run("delete_partition")


CHECKS = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)


@settings(max_examples=30, derandomize=True, deadline=None, suppress_health_check=CHECKS)
@given(taken=steps, keep=st.sampled_from((4, 1000)))
def test_readers(client: "redis.Redis", taken: list[tuple[str, str, int, bool]], keep: int) -> None:
    """Nothing is lost without a report, nothing comes out of order, and credit holds."""
    _run(client, taken, keep)


@pytest.mark.soak
@settings(max_examples=1_000, deadline=None, suppress_health_check=CHECKS)
@given(taken=steps, keep=st.sampled_from((4, 1000)))
def test_readers_for_long(client: "redis.Redis", taken: list[tuple[str, str, int, bool]], keep: int) -> None:
    """The same over a thousand histories."""
    _run(client, taken, keep)
