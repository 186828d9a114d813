"""docs/ejabberd.md and docs/prosody.md lead from a fresh package to a queue that works."""

import asyncio
import os
import shlex
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from frontends.tools.servers import conversation
from frontends.tools.servers.redis import RedisServer, valkey_binary
from stanzaq import Job, Publisher, StanzaqError, Worker
from tests.certificates import Authority
from tests.federation import pages
from tests.federation.servers import SECRET, PageEjabberd, PageProsody, PageServer
from tests.journeys.service import Frontend, eventually
from tests.waiting import PATIENCE_SECONDS

SESSIONS = 12
"""More of one account than servers allow by default."""

LARGEST_PAYLOAD = 256 * 1024


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """Give a Redis."""
    with RedisServer(binary=valkey_binary()) as server:
        yield server


@pytest.fixture(scope="module", params=[PageEjabberd, PageProsody])
def server(
    request: pytest.FixtureRequest, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PageServer]:
    """Give the server of a page, with the accounts of the page."""
    directory = tmp_path_factory.mktemp("site")
    made: PageServer = request.param(directory / "server", "example.org", authority)
    with made:
        made.add_accounts()
        yield made


@pytest.fixture
def program(server: PageServer, redis: RedisServer) -> dict[str, str]:
    """Give the settings of a frontend that the page exports, with the addresses of this run."""
    exported = [
        shlex.split(line)[1:] for line in pages.block(server.page, "sh").splitlines() if line.startswith("export")
    ]
    settings = dict(word.split("=", 1) for words in exported for word in words)
    here = {"127.0.0.1:5347": f"127.0.0.1:{server.component_port}", "redis://127.0.0.1:6379/0": redis.url}
    return {name: here.get(value, value) for name, value in settings.items()}


@pytest.fixture
def frontend(program: dict[str, str], server: PageServer, redis: RedisServer) -> Iterator[Frontend]:
    """Give a frontend as the page starts it."""
    own = {name.removeprefix("STANZAQ_"): value for name, value in program.items()}
    with Frontend(redis.url, server.component_port, SECRET, **own) as started:
        yield started


async def _run(line: str, environment: dict[str, str]) -> None:
    """Run a command of the page."""
    words = [sys.executable, "-m", "frontends.cli", *shlex.split(line)[1:]]
    process = await asyncio.create_subprocess_exec(
        *words, env=os.environ | environment, stdout=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0


async def test_page(server: PageServer, frontend: Frontend, program: dict[str, str]) -> None:
    """Workers of one account, more than a server admits by default, do what a publisher sends over TLS, the largest item too."""
    for line in pages.block(server.page, "sh").splitlines():
        if line.startswith("stanzaq node"):
            await _run(line, program)
    account: Any = {"password": SECRET, "address": f"127.0.0.1:{server.c2s_port}"}
    came: list[str] = []
    workers = [Worker("xmpp://worker@example.org", grace=5, **account) for _ in range(SESSIONS)]
    everybody = asyncio.Barrier(SESSIONS + 1)

    async def work(job: Job[str]) -> None:
        came.append(job.payload)
        await everybody.wait()

    for worker in workers:
        worker.task("pictures")(work)
    serving = [asyncio.create_task(worker.serve()) for worker in workers]
    sent = ["x" * LARGEST_PAYLOAD, *map(str, range(SESSIONS - 1))]
    async with asyncio.timeout(PATIENCE_SECONDS), Publisher("xmpp://publisher@example.org", **account) as publisher:
        await publisher.publish_many("pictures", sent)
        # Each worker has its item, while all are there at once.
        await everybody.wait()
    for worker in workers:
        worker.stop()
    await asyncio.wait_for(asyncio.gather(*serving), PATIENCE_SECONDS)
    assert sorted(came) == sorted(sent)


async def test_strangers(server: PageServer) -> None:
    """Nobody is let in without an account, and no component without the secret."""
    stranger = Publisher("xmpp://stranger@example.org", password=SECRET, address=f"127.0.0.1:{server.c2s_port}")
    with pytest.raises(StanzaqError, match="correct the user or the password"):
        async with stranger:
            await stranger.publish("pictures", "1")
    assert not conversation.component_accepted(server.component_port, "queue.example.org", "wrong")


class Waiting(Frontend):
    """A frontend that has started, whether Prosody lets it in or not."""

    def _ready(self) -> bool:
        return self.get("/readyz") in {200, 503}


@pytest.mark.parametrize("server", [PageProsody], indirect=True)
async def test_several_with_prosody(server: PageServer, program: dict[str, str], redis: RedisServer) -> None:
    """Prosody lets in one of several frontends; when it ends, one of those that wait takes its place."""
    own = {name.removeprefix("STANZAQ_"): value for name, value in program.items()}
    first, second = (kind(redis.url, server.component_port, SECRET, **own) for kind in (Frontend, Waiting))
    with first, second:
        await eventually(lambda: "conflict" in second.log, "two are let in")
        assert (first.get("/readyz"), second.get("/readyz")) == (200, 503)
        first.kill()
        await eventually(lambda: second.get("/readyz") == 200, "nobody takes its place")
