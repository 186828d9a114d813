"""Deliveries over a network that loses, repeats, delays and reorders, from frontends that die: the guarantee of each level.

The service is its scripts on a real server, run by two frontends; workers follow protocol.md. The test knows stages and
tokens; stanzas are tested elsewhere.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.model.names import Partition
from frontends.tools.servers.redis import RedisServer
from tests.lua.driver import Answer, Delivered, Queue, Runner

ITEMS = 6
STEPS = 60
CLIENT_PAUSE_MS = 3_000
LEVELS = {"w1@x/a": "assured", "w2@x/a": "acknowledged", "w3@x/a": "assured"}


class Network:
    """Stanzas on their way, each a callback at its receiver; hostile when told to be."""

    def __init__(self, random: Random) -> None:
        """Begin hostile and empty."""
        self._random = random
        self.flying: list[Callable[[], None]] = []
        self.hostile = True

    def send(self, act: Callable[[], None]) -> None:
        """Send a stanza: it may be lost or come twice."""
        fate = self._random.random() if self.hostile else 1.0
        self.flying += [] if fate < 0.3 else [act, act] if fate < 0.5 else [act]

    def step(self) -> None:
        """Let any stanza arrive."""
        if self.flying:
            place = self._random.randrange(len(self.flying)) if self.hostile else 0
            self.flying.pop(place)()


class Worker:
    """A client that follows protocol.md: it remembers what it was told to deliver, and asks again until answered."""

    def __init__(self, jid: str, service: "Service") -> None:
        """Begin with nothing."""
        self.jid = jid
        self.begun: Counter[int] = Counter()
        self.working: dict[int, Delivered] = {}
        self._held: dict[int, Delivered] = {}
        self._service = service

    def receive(self, sent: Delivered) -> None:
        """Answer what has come, and begin the work that may begin."""
        token, known = sent.token, self.begun[sent.token] > 0
        if sent.stage == "acknowledged":
            self._begin(sent)
        elif sent.stage == "assured" and not known:
            self._held.setdefault(token, sent)
        elif sent.stage == "deliver" and token in self._held:
            self._begin(self._held.pop(token))
        elif sent.stage == "deliver" and not known:
            self._service.network.send(lambda: self._service.bounced(self.jid, sent))
            return
        self._service.network.send(lambda: self._service.confirmed(self.jid, sent))

    def go_on(self) -> None:
        """Ask again for the acknowledgement of all finished items."""
        for delivery in list(self.working.values()):
            self._service.network.send(lambda delivery=delivery: self._service.retracted(self, delivery))  # type: ignore[misc]

    def _begin(self, delivery: Delivered) -> None:
        self.begun[delivery.token] += 1
        self.working[delivery.token] = delivery


class Service:
    """A queue and its two frontends, one of which may die with unsent deliveries."""

    def __init__(self, queue: Queue, random: Random) -> None:
        """Open the queue."""
        self.network = Network(random)
        self.workers = {jid: Worker(jid, self) for jid in LEVELS}
        self._queue = queue
        self._random = random
        self._lives = 0
        self._lapsed: list[str] = []
        self._frontends = ["f0", "f1"]
        queue.open(max_deliveries=0)
        for jid, level in LEVELS.items():
            queue.subscribe(jid, 2, level)

    def publish(self, number: int) -> None:
        """Let an item come."""
        self._act(lambda: self._queue.publish(f"i{number}"))

    def confirmed(self, jid: str, sent: Delivered) -> None:
        """Receive a confirmation."""
        self._act(lambda: self._queue.confirm(jid, sent))

    def bounced(self, jid: str, sent: Delivered) -> None:
        """Receive the bounce of a worker that does not know what it is to deliver."""
        self._act(lambda: self._queue.bounce(jid, sent))

    def retracted(self, worker: Worker, delivery: Delivered) -> None:
        """Receive an acknowledgement; any answer ends it for the worker."""
        self._act(lambda: self._queue.retract(worker.jid, delivery.item, delivery.token))
        self.network.send(lambda: worker.working.pop(delivery.token, None) and None)

    def pass_time(self, ms: int) -> None:
        """Let time pass; sweep, take over from dead frontends, and let unsubscribed workers come back."""
        self._queue.now += ms
        self._act(self._queue.expire)
        for dead in self._lapsed:
            self._act(lambda dead=dead: self._queue.run("take_over", previous=dead))  # type: ignore[misc]
        self._lapsed.clear()
        for jid, level in LEVELS.items():
            if jid not in self._queue.run("list_subscribers").rows[1]:
                self._act(lambda jid=jid, level=level: self._queue.subscribe(jid, 2, level))  # type: ignore[misc]
        for worker in self.workers.values():
            worker.go_on()

    def left(self) -> int:
        """Count the items that are not acknowledged."""
        return self._queue.client.xlen(self._queue.key("log"))

    def _act(self, call: Callable[[], Answer]) -> None:
        """Run a script by some frontend, which sends its deliveries unless it dies first."""
        which = self._random.randrange(2)
        self._queue.frontend = self._frontends[which]
        answer = call()
        if self.network.hostile and self._random.random() < 0.05:
            self._lapsed.append(self._frontends[which])
            self._lives += 1
            self._frontends[which] = f"g{self._lives}"
            return
        for sent in answer.deliveries:
            worker = self.workers[sent.jid]
            self.network.send(lambda worker=worker, sent=sent: worker.receive(sent))  # type: ignore[misc]


@pytest.fixture(scope="module")
def client(valkey: RedisServer) -> Iterator["redis.Redis"]:
    """Give a connection."""
    with redis.Redis.from_url(valkey.url) as found:
        yield found


def _run(client: "redis.Redis", random: Random) -> None:
    queue = Queue(Runner(client, checked=False), Partition("jobs", secrets.token_hex(6)))
    service = Service(queue, random)
    published = 0
    for _ in range(STEPS):
        if published < ITEMS and random.random() < 0.3:
            service.publish(published)
            published += 1
        service.network.step()
        if random.random() < 0.3:
            service.pass_time(random.choice((0, 1_000, 5_000, 20_000, 61_000)))
    for number in range(published, ITEMS):
        service.publish(number)
    # The network is not hostile any more: everything completes by itself.
    service.network.hostile = False
    for _ in range(100):
        while service.network.flying:
            service.network.step()
        if not service.left() and not any(worker.working for worker in service.workers.values()):
            break
        service.pass_time(CLIENT_PAUSE_MS)
    assert service.left() == 0
    for jid, level in LEVELS.items():
        if level == "assured":
            assert max(service.workers[jid].begun.values(), default=0) <= 1
    kept = queue.kept()
    assert not kept & {"confirmations", "retries", "inflight", "lock_deadlines", "locks_by_subscriber", "ready"}
    queue.run("delete_partition")


CHECKS = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=CHECKS)
def test_hostile_network(client: "redis.Redis", seed: int) -> None:
    """S5, S10, S12, SX13: every item is done at last, and no lock's item is begun twice at the level assured."""
    _run(client, Random(seed))


@pytest.mark.soak
@given(seed=st.integers(0, 2**32))
@settings(max_examples=2_000, deadline=None, suppress_health_check=CHECKS)
def test_hostile_network_for_long(client: "redis.Redis", seed: int) -> None:
    """The same over two thousand runs."""
    _run(client, Random(seed))
