"""Shared by the fuzz tests: a frontend in a loop of its own, and a scene before each example."""

import asyncio
import time
from collections.abc import Iterator
from typing import Final
from xml.etree.ElementTree import Element, fromstring, tostring

import pytest
import redis

from frontends.tools.servers.redis import RedisServer, valkey_binary
from frontends.xmpp import stream
from tests.fuzz.frontend import Frontend
from tests.fuzz.scene import ACTS

MOST_BYTES: Final = 262_144
"""ejabberd's default limit for a client's stanza."""

_TRIES: Final = 3

_CROWDED: Final = f"<a xmlns='urn:x'>{'<a/>' * (MOST_BYTES // 4)}</a>"
"""A stanza of as many elements as servers let through."""


class Stage:
    """A frontend for tests that are no coroutines, as Hypothesis needs; after a failure the next one is new."""

    def __init__(self, runner: asyncio.Runner, redis_url: str) -> None:
        """Use this loop and this Redis."""
        self._runner = runner
        self._redis_url = redis_url
        self._frontend: Frontend | None = None
        self._unit_seconds = _read_and_write()

    @property
    def frontend(self) -> Frontend:
        """The present frontend."""
        if self._frontend is None:
            with redis.Redis.from_url(self._redis_url) as client:
                client.flushall()
            self._frontend = self._runner.run(_started(self._redis_url))
        return self._frontend

    def play(self, data: bytes) -> list[Element]:
        """Send bytes after the scene is set; return all that was received."""
        for act in ACTS:
            self.say(act)
        return self.say(data)

    def longest_turn(self, data: bytes) -> float:
        """Send bytes; return the longest turn of the loop.

        1 is the time that the standard library takes for a stanza full of elements, a tenth of a second on quiet cores. Both
        are measured in the thread's own time. Other processes may spoil the caches of one try, but a slow input stays slow, so
        the best of a few tries counts.
        """
        turns: list[float] = []
        while len(turns) < _TRIES and (not turns or turns[-1] >= 1):
            if turns:
                # The machine may have become slower.
                self._unit_seconds = _read_and_write()
            self.play(data)
            turns.append(self.frontend.worst_seconds / self._unit_seconds)
        return min(turns)

    def say(self, data: bytes) -> list[Element]:
        """Send bytes; return all that was received."""
        try:
            return self._runner.run(self.frontend.exchange(data))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the frontend."""
        if self._frontend is not None:
            frontend, self._frontend = self._frontend, None
            self._runner.run(frontend.stop())


def _read_and_write() -> float:
    began = time.thread_time()
    tostring(fromstring(_CROWDED))
    return time.thread_time() - began


async def _started(url: str) -> Frontend:
    frontend = Frontend(url)
    await frontend.start()
    return frontend


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """Provide the stage of a module; its Redis is its own, since other tests empty theirs."""
    with (
        pytest.MonkeyPatch.context() as patch,
        RedisServer(binary=valkey_binary()) as server,
        asyncio.Runner() as runner,
    ):
        patch.setattr(stream, "_RETRY_FIRST", 0.001)
        stage = Stage(runner, server.url)
        yield stage
        stage.close()
