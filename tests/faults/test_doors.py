"""Leases over HTTP and workers over AMQP while Redis hangs, dies or loses a second, and while their queue is changed.

Every request is answered, and work continues. Each client is a thread with a connection of its own. Must not know how a
door is made.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import httpx
import proton
import pytest
from proton.utils import LinkDetached, SendException

from frontends.tools.servers.redis import RedisServer, redis_binary
from tests.doors.amqp.conftest import made
from tests.doors.amqp.served import AmqpFrontend, consumer, producer, text
from tests.doors.rest.served import RestFrontend, client
from tests.faults import past
from tests.faults.configured import retitle
from tests.faults.strikes import LONG, SHORT

REDIS_TIMEOUT = 1.0
ANSWER_SECONDS = 5.0
"""A request may need Redis more than once, on a machine where others want the same two cores."""

STANDSTILL_SECONDS = 7.0
"""Longer than every time-out: of a call to Redis, of a heartbeat, of a frontend's death."""

HEARD_SECONDS = 1.0
WAIT_SECONDS = 2
RECOVERY_SECONDS = 10.0
JSON = {"Accept": "application/json"}


@dataclass
class Load:
    """Publishers and workers at both doors, and the outcome of each item."""

    rest: RestFrontend
    amqp: AmqpFrontend
    queue: str
    published: dict[str, float] = field(default_factory=dict)
    done: dict[str, list[str]] = field(default_factory=lambda: {"lease": [], "link": []})
    answered: dict[str, int] = field(default_factory=lambda: {"http": 0, "amqp": 0})
    wrong: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    drained: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run all of them; an unexplained outcome fails the test."""
        parts = (self._publish_http, self._publish_amqp, self._lease, self._link)
        threads = [threading.Thread(target=self._part, args=(part,), name=part.__name__) for part in parts]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            self.drained.set()
            for thread in threads:
                thread.join(30)
        assert self.wrong == []

    def _part(self, part: Callable[[], None]) -> None:
        try:
            part()
        except Exception as error:  # noqa: BLE001  (told by the test, not by the thread)
            self.wrong.append(f"{part.__name__}: {type(error).__name__}: {error}")

    def _publish_http(self) -> None:
        with client(self.rest) as http:
            for number in itertools.count():
                name = f"http-{number}"
                while True:
                    # A time-out of the client is a missing answer.
                    told = http.post(
                        f"/queues/{self.queue}", params={"guid": name}, content=name, timeout=ANSWER_SECONDS
                    )
                    self.answered["http"] += 1
                    if told.status_code == httpx.codes.OK:
                        self.published[name] = time.monotonic()
                        break
                    assert told.status_code in {503, 504}, told.text
                    time.sleep(0.05)
                if self.stopping.wait(0.02):
                    return

    def _publish_amqp(self) -> None:
        connection = self.amqp.connect()
        sender = producer(connection, self.queue)
        for number in itertools.count():
            name = f"amqp-{number}"
            try:
                sender.send(proton.Message(body=name.encode(), inferred=True), timeout=ANSWER_SECONDS)
                self.published[name] = time.monotonic()
            except SendException:
                # It is an outcome all the same: the item may be sent again under another name.
                pass
            self.answered["amqp"] += 1
            if self.stopping.wait(0.02):
                connection.close()
                return

    def _lease(self) -> None:
        with client(self.rest) as http:
            path = ""
            while not self.drained.is_set():
                if not path:
                    begun = http.post(
                        "/subscriptions",
                        json={"destinations": self.queue, "prefetch": 5, "lease": 60},
                        timeout=ANSWER_SECONDS,
                    )
                    path = begun.headers.get("Location", "")
                    continue
                found = http.get(f"{path}?wait={WAIT_SECONDS}", headers=JSON, timeout=WAIT_SECONDS + ANSWER_SECONDS)
                assert found.status_code in {200, 503, 504}, found.text
                for message in found.json()["messages"] if found.status_code == httpx.codes.OK else []:
                    status = 0
                    while status not in {200, 404, 409}:
                        status = http.delete(message["href"], timeout=ANSWER_SECONDS).status_code
                    if status == httpx.codes.OK:
                        self.done["lease"].append(message["text"])

    def _link(self) -> None:
        while not self.drained.is_set():
            connection = self.amqp.connect()
            try:
                receiver = consumer(connection, self.queue, credit=5)
                while not self.drained.is_set():
                    try:
                        message = receiver.receive(timeout=0.5)
                    except proton.Timeout:
                        continue
                    receiver.accept()
                    self.done["link"].append(text(message))
            except LinkDetached:
                # The link's lease ended while Redis hung: a worker attaches again.
                pass
            finally:
                connection.close()

    def flows(self, seconds: float) -> None:
        """Wait until both workers have worked, and both publishers been answered, since now."""
        before = self._counts()
        ends = time.monotonic() + seconds
        while not all(now > then for now, then in zip(self._counts(), before, strict=True)):
            assert self.wrong == []
            assert time.monotonic() < ends, (before, self._counts())
            time.sleep(0.05)

    def _counts(self) -> list[int]:
        published = [
            len([name for name in tuple(self.published) if name.startswith(door)]) for door in ("http", "amqp")
        ]
        return [*published, *(len(each) for each in self.done.values())]

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """Allow the loss of what Redis is told in the block."""
        begun = time.monotonic()
        yield
        # A client may learn a little later of earlier events.
        ended = time.monotonic() + HEARD_SECONDS
        while time.monotonic() < ended:
            time.sleep(0.05)
        for name, at in tuple(self.published.items()):
            if begun <= at <= ended:
                del self.published[name]

    def settle(self) -> None:
        """Stop publishing and let the workers finish."""
        self.stopping.set()
        ends = time.monotonic() + RECOVERY_SECONDS
        while missing := self.published.keys() - {*self.done["lease"], *self.done["link"]}:
            assert self.wrong == []
            assert time.monotonic() < ends, f"not worked off: {sorted(missing)[:10]}"
            time.sleep(0.05)


def stands_still(server: RedisServer) -> None:
    """SIGSTOP for longer than every time-out."""
    server.process.pause()
    time.sleep(STANDSTILL_SECONDS)
    server.process.resume()


def is_killed(server: RedisServer) -> None:
    """SIGKILL, and a start that loads the append-only file."""
    server.kill()
    server.start()


@contextmanager
def loaded(lock_seconds: int) -> Iterator[tuple[RedisServer, Load]]:
    """Start a server, a frontend of each door, and a flowing load."""
    options = {"appendonly": "yes", "appendfsync": "always"}
    settings = {"REDIS_TIMEOUT": str(REDIS_TIMEOUT)}
    with ExitStack() as stack:
        server = stack.enter_context(RedisServer(binary=redis_binary(), options=options))
        rest = stack.enter_context(RestFrontend(server.url, **settings))
        amqp = stack.enter_context(AmqpFrontend(server.url, **settings))
        queue = made(server.url, queueing=True, stanzaq__retention_items="0", stanzaq__lock_seconds=str(lock_seconds))
        load = Load(rest, amqp, queue)
        with load.running():
            load.flows(RECOVERY_SECONDS)
            yield server, load


@pytest.mark.parametrize("strike", [stands_still, is_killed])
def test_redis_is_struck(strike: Callable[[RedisServer], None]) -> None:
    """Guarantees 1 and 8: publishes and fetches under way are answered, workers with credit get items again, nothing is lost."""
    with loaded(LONG) as (server, load):
        for _ in range(1 if strike is stands_still else 3):
            before = dict(load.answered)
            strike(server)
            load.flows(RECOVERY_SECONDS)
            assert all(load.answered[door] > before[door] for door in before)
        load.settle()


def test_the_queue_is_struck() -> None:
    """Guarantees 1, 8 and 10: Redis loses the last second of the queue's record, then that of its partitions.

    Every request is answered and work continues each time, and only writes of that second are lost.
    """
    with loaded(SHORT) as (server, load):
        record = past.of_record(server, load.queue)
        retitle(server.url, load.queue, "Jobs")
        load.flows(RECOVERY_SECONDS)
        record.lose()
        load.flows(RECOVERY_SECONDS)

        with load.forgetting():
            partitions = past.of_partitions(server, load.queue)
            load.flows(RECOVERY_SECONDS)
            partitions.lose()
        load.flows(RECOVERY_SECONDS)
        load.settle()
