"""What failovers lose of the publishes that were answered, by how they are confirmed; the figures of docs/failover.md."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
import redis

from broker import codec
from broker.model.commands import Declare, Publish
from broker.model.items.items import Envelope
from broker.model.names import Jid
from broker.model.results import Declared, Published, Result
from broker.redis_core.core import RedisCore
from broker.settings import Settings
from frontends.tools.servers.redis import RedisServer
from frontends.tools.servers.sentinels import RedisSentinels
from tests.admitting import ADMITTING
from tests.contract.conftest import Door

ALICE: Final = Jid("alice@x/home")
IN_FLIGHT: Final = 2_000
RUNS: Final = 20
GUARDED: Final = {"min-replicas-to-write": "1"}

Strike = Callable[[RedisSentinels, RedisServer], Any]


def kill(_sentinels: RedisSentinels, master: RedisServer) -> None:
    """Kill the master with SIGKILL."""
    master.kill()


def replace(sentinels: RedisSentinels, _master: RedisServer) -> None:
    """Have the master replaced while it lives, as if it had been cut off: it learns of that late."""
    sentinels.fail_over()


class Publishers:
    """Keep so many publishes in flight until they are told to stop, and note which are answered."""

    def __init__(self, core: RedisCore, node: str) -> None:
        """Publish to a node."""
        self._core, self._node = core, node
        self.answered: set[str] = set()
        self.refused: set[str] = set()
        self.open = 0
        self.going = True

    def publish(self, item: str) -> None:
        """Publish one item; when it is answered, another."""
        self.open += 1
        command = Publish(self._node, ALICE, item, codec.pack(Envelope(b"<x/>")), 4)
        self._core.submit(command, lambda result: self._on_result(item, result))

    def _on_result(self, item: str, result: Result) -> None:
        self.open -= 1
        (self.answered if isinstance(result, Published) else self.refused).add(item)
        if self.going:
            # Who is refused waits a little.
            pause = 0 if isinstance(result, Published) else 0.1
            asyncio.get_running_loop().call_later(pause, self.publish, secrets.token_hex(8))

    async def end(self) -> None:
        """Publish no more, and wait for all answers."""
        self.going = False
        while self.open:  # noqa: ASYNC110  (answers are no events)
            await asyncio.sleep(0.02)

    async def repeat(self) -> None:
        """Publish what was refused again, until it is answered."""
        while self.refused:
            again, self.refused = self.refused, set()
            for item in again:
                self.publish(item)
            await self.end()


async def losses(
    strike: Strike, confirm: str, options: Mapping[str, str], replicas: int = 1, needed: int = 1
) -> tuple[int, int]:
    """Return how many answered publishes a failover loses, and how many were answered.

    So many of the `replicas` are `needed` for a publish that is confirmed as replicated; of these the refused ones are repeated.
    """
    with RedisSentinels(replicas, options=options) as sentinels:
        given = {
            "redis_url": sentinels.url,
            "redis_replicas": needed,
            "xmpp_domain": "q.localhost",
            "xmpp_secret": "s",
        }
        core = RedisCore(Settings(**(ADMITTING | given)), Door())
        await core.start()
        made = await core.ask(Declare("jobs", ALICE, {"stanzaq#confirm": (confirm,)}))
        assert isinstance(made, Declared)
        old = sentinels.master()
        await asyncio.to_thread(sentinels.wait_for_replicas, old)
        publishers = Publishers(core, "jobs")
        for _ in range(IN_FLIGHT):
            publishers.publish(secrets.token_hex(8))
        while len(publishers.answered) < 2 * IN_FLIGHT:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.to_thread(strike, sentinels, old)
        new = await asyncio.to_thread(sentinels.successor, old)
        await asyncio.sleep(1)
        await publishers.end()
        before = len(publishers.answered)
        if confirm == "replicated":
            if not old.running:
                old.start()
            await publishers.repeat()
        await core.stop()
        with redis.Redis.from_url(new.url) as client:
            (log,) = client.scan_iter("sq:{jobs@*:log")
            found = Counter(fields[b"id"].decode() for _, fields in client.xrange(log))
        assert set(found.values()) == {1}
        return len(publishers.answered - set(found)), before


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("strike", [kill, replace])
async def test_replicated(strike: Strike) -> None:
    """Guarantee 1: no failover loses a publish that all replicas had to have; one that is repeated counts once."""
    for _ in range(RUNS):
        lost, answered = await losses(strike, "replicated", {})
        assert lost == 0 and answered >= IN_FLIGHT
