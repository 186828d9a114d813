"""A queue under load for faults, and the checks at the end. Must not know which fault comes.

There is no event loop here: whatever a test does to the service, publishers and workers run in processes of their own.
"""

import asyncio
import random
import secrets
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import redis

from frontends.tools.servers.ejabberd import Ejabberd
from tests.faults import story, verdict
from tests.faults.configured import retitle
from tests.faults.facts import Evidence, Fact, What, now_ms
from tests.faults.house import DOMAIN, House, Player
from tests.faults.player import CREDIT, POISON, RATE, passing
from tests.journeys.client import Client
from tests.waiting import PATIENCE_SECONDS

RECOVERY_SECONDS: Final = 8.0
"""How soon the service works after a fault: five seconds for a takeover (guarantee 4), and some for a machine that
also has to start the frontend.
"""

REST_SECONDS: Final = 60.0
"""The longest rest of a dead letter that several faults have met on its way (`outbox.LAST_MS`)."""

PUBLISHERS: Final = 2
WORKERS: Final = 3

_POLL_SECONDS: Final = 0.05
_BROWSE_MOST: Final = 500


@dataclass
class Stage:
    """One test's queue with its publishers and workers, on servers that all tests share.

    With `leaves` it is a collection of so many queues, each in one partition more than the one before it.
    """

    house: House
    random: random.Random
    directory: Path
    lock_seconds: int
    leaves: int = 0
    rate: int = RATE
    node: str = ""
    """The node that workers subscribe to."""
    queues: list[str] = field(default_factory=list)
    evidence: Evidence = field(init=False)
    publishers: list[Player] = field(default_factory=list)
    workers: list[Player] = field(default_factory=list)
    _healed_ms: int = 0
    _logged: list[int] = field(default_factory=list)

    @contextmanager
    def played(self) -> Iterator[Self]:
        """Create the queue, start the load, and wait until it flows."""
        self.evidence = Evidence(self.directory)
        self._logged = [len(frontend.log) for frontend in self.house.frontends]
        self.until(self.house.ailing, PATIENCE_SECONDS, "the service is not whole")
        asyncio.run(self._make())
        options = {
            "accounts": self.house.ejabberd.anonymous,
            "port": str(self.house.ejabberd.c2s_port),
            "service": DOMAIN,
            "node": self.node,
            "queues": ",".join(self.queues),
            "lock_seconds": str(self.lock_seconds),
            "seed": str(self.random.random()),
            "rate": str(self.rate),
        }
        self.workers = [Player(self.directory, "worker", f"w{number}", options) for number in range(WORKERS)]
        self.publishers = [Player(self.directory, "publisher", f"p{number}", options) for number in range(PUBLISHERS)]
        with ExitStack() as stack:
            for player in (*self.workers, *self.publishers):
                stack.enter_context(player)
            self.heal()
            self.recover()
            yield self

    # For faults.

    def rest(self, seconds: float) -> None:
        """Let time pass, under supervision."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            self.house.supervise()
            time.sleep(_POLL_SECONDS)

    def pause(self, least: float, most: float) -> None:
        """Let a random time pass."""
        self.rest(self.random.uniform(least, most))

    @contextmanager
    def severing(self, worker: Player | None = None) -> Iterator[None]:
        """Record that the block cuts a worker's connection, or everybody's."""
        begun = now_ms()
        yield
        done = now_ms()
        # A worker's last facts tell its account.
        for who in self.evidence.accounts(worker.name) if worker else [""]:
            self.evidence.note(Fact(What.SEVERED, begun, who, until_ms=done))

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """Record that Redis will lose what is written in the block."""
        begun = now_ms()
        yield
        self.evidence.note(Fact(What.FORGOTTEN, begun, until_ms=now_ms()))

    def retitle(self, title: str) -> None:
        """Change the record of each queue, as its owner."""
        for queue in self.queues:
            retitle(self.house.store.url, queue, title)

    def heal(self) -> None:
        """Record that the cause is gone: from now on the service has a few seconds to recover."""
        self._healed_ms = now_ms()

    # The end of every test.

    def recover(self) -> None:
        """Wait until items flow again, at half the rate of publishing at least, and every frontend is ready."""
        enough = PUBLISHERS * self.rate / 2

        def stagnant() -> list[str]:
            self.evidence.refresh()
            flow = self.evidence.acknowledged_since(max(self._healed_ms, now_ms() - 1000))
            return [] if flow >= enough else [f"{flow} acknowledgements in the last second"]

        self.until(stagnant, RECOVERY_SECONDS, "the queue does not flow again")
        self.until(self.house.ailing, RECOVERY_SECONDS, "the service did not become whole again")

    def settle(self) -> None:
        """Stop the publishers when all is answered, and let the workers finish."""
        for publisher in self.publishers:
            publisher.process._child.send_signal(signal.SIGTERM)
        for publisher in self.publishers:
            self.until(publisher.unfinished, PATIENCE_SECONDS, "a publish is not answered")
        # With short locks some expire, which takes their time.
        short = self.lock_seconds if self.lock_seconds <= RECOVERY_SECONDS else 0
        self.until(self._under_way, 2 * short + RECOVERY_SECONDS + REST_SECONDS, "the queue is not worked off")
        for worker in self.workers:
            assert worker.process._child.poll() is None, worker.log
            worker.kill()

    def judge(self) -> None:
        """Check the evidence against the guarantees."""
        self.evidence.refresh()
        facts = self.evidence.facts
        found = verdict.violations(facts, self.lock_seconds * 1000, CREDIT)
        found += verdict.lost(facts, *asyncio.run(self._left()))
        lines = "\n".join(f"{each.about}: {each.what}" for each in found)
        assert not found, f"{lines}\n{self._story({each.about for each in found})}"

    def until(self, missing: Callable[[], Collection[str]], seconds: float, what: str) -> None:
        """Wait, under supervision, until nothing is missing any more."""
        ends = time.monotonic() + seconds
        while named := missing():
            assert time.monotonic() < ends, f"{what}: {', '.join(sorted(named))}\n{self._story(named)}"
            self.rest(_POLL_SECONDS)

    def _story(self, about: Collection[str]) -> str:
        frontends = {f"frontend {number}": frontend.log for number, frontend in enumerate(self.house.frontends)}
        said = {name: log[at:] for (name, log), at in zip(frontends.items(), self._logged, strict=True)}
        said |= {player.name: player.log for player in (*self.workers, *self.publishers)}
        ended = f"healed at {self._healed_ms}, given up at {now_ms()}"
        return "\n".join([ended, story.told(self.evidence.facts, about, said), story.kept(self._kept())])

    def _kept(self) -> dict[str, str]:
        try:
            return {name: text for queue in {self.node, *self.queues} for name, text in self.house.kept(queue).items()}
        except redis.RedisError as error:
            return {"Redis": str(error)}

    def _under_way(self) -> set[str]:
        """Return the items that are not finished."""
        self.evidence.refresh()
        items = self.evidence.items
        published = items(What.PUBLISHED) - verdict.forgotten(self.evidence.facts)
        # A request of a killed worker may have been carried out: the queue itself decides.
        if unseen := published - items(What.ACKNOWLEDGING) - items(What.RELEASING):
            return unseen
        left, dead = asyncio.run(self._left())
        # Between its two steps a dead letter is in both places.
        return {*left} | ({item for item in published if item.startswith(POISON)} - {*dead})

    async def _make(self) -> None:
        options = {
            "pubsub#access_model": "open",
            "stanzaq#lock_seconds": str(self.lock_seconds),
            # A publish whose answer was lost is repeated, perhaps when its item is done already (X1).
            "stanzaq#dedupe": "ignore",
            # Only poison becomes a dead letter.
            "stanzaq#max_deliveries": "1000",
        }
        async with self._visitor() as client:
            if not self.leaves:
                self.node = await client.queue(options)
                self.queues = [self.node]
                return
            self.node = f"jobs-{secrets.token_hex(4)}"
            collection = {"pubsub#node_type": "collection", "pubsub#access_model": "open"}
            assert (await client.create(self.node, collection)).error == ""
            for number in range(self.leaves):
                below = {"pubsub#collection": self.node, "stanzaq#partitions": str(1 + number)}
                self.queues.append(await client.queue(options | below))

    async def _left(self) -> tuple[list[str], list[str]]:
        """Return the items that are still in the queues, and the dead letters."""
        async with self._visitor() as client:
            left = [item for queue in self.queues for item in await _browsed(client, queue)]
            dead = [item for queue in self.queues for item in await _browsed(client, f"{queue}/dead")]
            return left, dead

    def _visitor(self) -> "_Visitor":
        return _Visitor(self.house.ejabberd)


class _Visitor:
    """A short-lived client."""

    def __init__(self, ejabberd: Ejabberd) -> None:
        self._client = Client(ejabberd.c2s_port, DOMAIN, ejabberd.anonymous)

    async def __aenter__(self) -> Client:
        await self._client.open()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


async def _browsed(client: Client, node: str) -> list[str]:
    ask = f"<items node='{node}' max_items='{_BROWSE_MOST}'/>"
    while passing(answer := await client.pubsub(ask, "get")):  # noqa: ASYNC110  (asks again)
        await asyncio.sleep(_POLL_SECONDS)
    # The node for dead letters exists only after the first one.
    assert answer.error in {"", "cancel item-not-found"}, answer.error
    jobs = [job.get("name", "") for job in answer.element.iter("{urn:x}job")]
    assert len(jobs) < _BROWSE_MOST
    return jobs
