"""The runbook of docs/operations.md: each symptom is caused, and the commands print what the page shows."""

import asyncio
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from broker import keys
from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.redis import RedisServer, redis_binary
from frontends.tools.servers.sentinels import SERVICE, RedisSentinels
from tests.journeys.client import Client, Delivery
from tests.journeys.service import Frontend, comes_to, eventually
from tests.operations import PAGE, PASSWORD, make_user, runbook, told
from tests.waiting import PATIENCE_SECONDS

DOMAIN: Final = "runbook.localhost"
ROOT: Final = Path(__file__).parents[2]
_OF_THE_SHELL: Final = set("|&;<>()$`*?~#")
INCARNATIONS: Final = {"8e71964d": "jobs", "5b1c2f60": "jobs/dead"}


@dataclass
class Desk:
    """An operator's shell: `redis-cli` and `stanzaq` reach the right servers without arguments."""

    directory: Path
    redis: RedisServer
    settings: dict[str, str]
    sentinel_port: int = 0
    words: dict[str, str] = field(default_factory=lambda: {"example.org": "localhost", "SERVICE": SERVICE})

    def __post_init__(self) -> None:
        """Put both commands into the shell's path."""
        # As the page advises; changes are for another user.
        make_user(self.redis.url, "inspector", "+eval_ro")
        reader = ["--user", "inspector", "--pass", PASSWORD, "--no-auth-warning"]
        reach = ["/usr/bin/redis-cli", "-s", str(self.redis.socket)]
        self._command(
            "redis-cli",
            # One server on a socket is no cluster, of which redis-cli would follow redirections.
            '[ "$1" = "-c" ] && shift\n'
            f'[ "$1 $2" = "-p 26379" ] && shift 2 && exec /usr/bin/redis-cli -p {self.sentinel_port} "$@"\n'
            f'[ "$1 $2" = "CONFIG SET" ] && exec {shlex.join(reach)} "$@"\nexec {shlex.join(reach + reader)} "$@"',
        )
        self._command("stanzaq", f'exec {shlex.quote(sys.executable)} -m frontends.cli "$@"')

    def _command(self, name: str, text: str) -> None:
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o700)

    def follow(self, symptom: str) -> None:
        """Run the commands that the page has for a symptom, and compare their output with the page."""
        for command, says in runbook(symptom):
            said = self._run(self._here(command))
            for line in says:
                assert told(self._here(line), said), f"{command}\ndoes not say\n{line}\nbut\n{said}"

    def _run(self, command: str) -> str:
        own = {name: value for name, value in os.environ.items() if not name.startswith("STANZAQ_")}
        environment = own | {"COLUMNS": "250"} | {f"STANZAQ_{name}": value for name, value in self.settings.items()}
        program, *words = shlex.split(command)
        if program == "stanzaq" and not _OF_THE_SHELL & set(command):
            # It is forked, which starts it a second sooner than the shell does.
            line = [sys.executable, "-m", "frontends.cli", *words]
        else:
            environment["PATH"] = f"{self.directory}:{os.environ['PATH']}"
            line = ["/bin/sh", "-c", command]
        done = subprocess.run(
            line,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        return done.stdout

    def _here(self, text: str) -> str:
        """Translate a text of the page for this service: the incarnations of nodes, the host of accounts."""
        with redis.Redis.from_url(self.redis.url, decode_responses=True) as client:
            for printed, node in INCARNATIONS.items():
                if printed in text:
                    text = text.replace(printed, str(client.hget(f"sq:{{{node}}}:node", "incarnation")))
        for printed, word in self.words.items():
            text = text.replace(printed, word)
        return text


@dataclass
class House:
    """A service with a shell, and the accounts of the page."""

    desk: Desk
    frontends: list[Frontend]
    owner: Client
    slow: Client
    quick: Client


@contextlib.contextmanager
def _frontends(ejabberd: Ejabberd, url: str, count: int, **settings: str) -> Iterator[list[Frontend]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(Frontend(url, ejabberd.component_port, ejabberd.secret, XMPP_DOMAIN=DOMAIN, **settings))
            for _ in range(count)
        ]


@contextlib.asynccontextmanager
async def people(ejabberd: Ejabberd) -> AsyncIterator[tuple[Client, Client, Client]]:
    """Connect and disconnect an owner and both workers of the page."""
    slow, quick = (ejabberd.register(user, "secret", known=True) for user in ("slow", "quick"))
    clients = (
        Client(ejabberd.c2s_port, DOMAIN, ejabberd.anonymous),
        Client(ejabberd.c2s_port, DOMAIN, slow, "secret"),
        Client(ejabberd.c2s_port, DOMAIN, quick, "secret"),
    )
    for client in clients:
        await client.open()
    try:
        yield clients
    finally:
        await asyncio.gather(*(client.close() for client in clients))


@pytest.fixture
async def house(ejabberd: Ejabberd, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[House]:
    """Provide a service of two frontends; a test may name settings of its Redis, all of which each owner may use."""
    options: dict[str, str] = getattr(request, "param", {})
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(RedisServer(binary=redis_binary(), options=options))
        if options:
            # Frontends read quotas when they start; a quarter of the memory would end before Redis refuses.
            with redis.Redis.from_url(server.url) as client:
                client.hset(keys.of_service("quotas"), "default", json.dumps({"bytes": 1_000_000_000}))
        frontends = stack.enter_context(_frontends(ejabberd, server.url, 2, WATCHDOG_SECONDS="60"))
        settings = {**frontends[0]._settings, "METRICS_BIND": "127.0.0.1:9464", "LOG_FORMAT": "console"}
        async with people(ejabberd) as (owner, slow, quick):
            yield House(Desk(tmp_path, server, settings), frontends, owner, slow, quick)


async def declared(owner: Client, **options: str) -> None:
    """Create the node of the page."""
    given = {"pubsub#publish_model": "open", **{f"stanzaq#{name}": value for name, value in options.items()}}
    assert (await owner.create("jobs", given)).error == ""


async def test_backlog(house: House) -> None:
    """Workers hold their credit and more comes: the page finds it, and another worker is the remedy."""
    await declared(house.owner)
    assert (await house.slow.subscribe("jobs", 2)).error == ""
    for number in range(12):
        assert (await house.owner.publish("jobs", f"i{number}")).error == ""
    for _ in range(2):
        await house.slow.next(Delivery)
    await asyncio.to_thread(house.desk.follow, "The backlog grows")
    assert (await house.quick.subscribe("jobs", 20)).error == ""
    for _ in range(10):
        await house.quick.next(Delivery)


async def test_items_come_back(house: House) -> None:
    """A worker that hangs and one that fails on its item are both found, with item, attempt and holder."""
    await declared(house.owner, lock_seconds="5")
    assert (await house.slow.subscribe("jobs", 2)).error == ""
    for item in ("z", "a"):
        assert (await house.owner.publish("jobs", item)).error == ""
    torn = await house.slow.next(Delivery)
    assert torn.item == "z"
    assert (await house.slow.unlock("jobs", "z", torn.token, "dead-letter='true' reason='torn'")).error == ""
    assert (await house.slow.next(Delivery)).attempt == 1
    assert (await house.slow.next(Delivery)).attempt == 2
    await asyncio.to_thread(house.desk.follow, "Items come back")


async def test_one_starves_the_rest(house: House) -> None:
    """A worker with too much credit is seen at once, and others get its items when its session ends."""
    await declared(house.owner)
    house.slow.present()
    assert (await house.slow.subscribe("jobs", 100)).error == ""
    for number in range(20):
        assert (await house.owner.publish("jobs", f"i{number}")).error == ""
    for _ in range(20):
        await house.slow.next(Delivery)
    assert (await house.quick.subscribe("jobs", 5)).error == ""
    await asyncio.to_thread(house.desk.follow, "One worker starves the rest")
    house.slow.vanish()
    for _ in range(5):
        await house.quick.next(Delivery)


async def test_partitions_without_owners(house: House) -> None:
    """The only member has credit for one partition: doctor names the others that have items, and another member takes them."""
    await declared(house.owner, partitions="4")
    assert (await house.slow.subscribe("jobs", 1, options={"stanzaq#group": "resizers"})).error == ""
    for partition in (0, 1, 3):
        item = f"<item xmlns:q='urn:stanzaq:0' q:partition='{partition}'><job xmlns='urn:x'/></item>"
        assert (await house.owner.pubsub(f"<publish node='jobs'>{item}</publish>")).error == ""
    await house.slow.next(Delivery)
    await asyncio.to_thread(house.desk.follow, "Nobody owns a partition")
    assert (await house.quick.subscribe("jobs", 20, options={"stanzaq#group": "resizers"})).error == ""
    for _ in range(2):
        await house.quick.next(Delivery)


@pytest.mark.parametrize("house", [{"maxmemory": "6mb", "appendonly": "yes"}], indirect=True)
async def test_memory(house: House) -> None:
    """A full Redis refuses publishers; the page says so, and its last command lets them continue."""
    await declared(house.owner)
    payload = f"<job xmlns='urn:x'>{'x' * 50_000}</job>"
    answer = ""
    while not answer:
        answer = (await house.owner.publish("jobs", payload=payload)).error
    assert answer == "wait resource-constraint"
    await asyncio.to_thread(house.desk.follow, "Redis near its memory")
    assert (await house.owner.publish("jobs", payload=payload)).error == ""


async def test_a_full_node(house: House) -> None:
    """Publishes to a full node are refused and counted by its name; the page's last command lets them continue."""
    await declared(house.owner)
    desk = house.desk
    await asyncio.to_thread(desk._run, "stanzaq node configure jobs max_items=3")
    answers = [(await house.owner.publish("jobs", f"i{number}")).error for number in range(5)]
    assert answers == [""] * 3 + ["wait conflict node-full"] * 2
    await asyncio.to_thread(desk.follow, "A node is full")
    assert (await house.owner.publish("jobs", "more")).error == ""
    told = "".join([await asyncio.to_thread(each.metrics) for each in house.frontends])
    assert re.search(r'stanzaq_refused_total\{door="xmpp",node="(?:jobs)?",reason="node-full"\} [12]', told), told


async def until(publish: Callable[[], Awaitable[str]], answer: str) -> None:
    """Publish until the answer is this one."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await publish() != answer:  # noqa: ASYNC110  (another frontend decides)
            await asyncio.sleep(0.1)


async def test_a_quota(house: House) -> None:
    """An owner has used up its quota: the page finds it, and its last command raises it."""
    await declared(house.owner)
    desk = house.desk
    desk.words = {"alice@example.org": house.owner.bare, **desk.words}
    await asyncio.to_thread(desk._run, f"stanzaq quota set {house.owner.bare} items=2")

    async def publish() -> str:
        return (await house.owner.publish("jobs")).error

    # It holds everywhere within three seconds, and what is deleted is found by the next measurement.
    await until(publish, "wait resource-constraint quota-exceeded")
    await house.owner.owner("<purge node='jobs'/>")
    for _ in range(2):
        await until(publish, "")
    await asyncio.to_thread(desk.follow, "A quota is used up")


@pytest.mark.parametrize("house", [{"enable-protected-configs": "yes"}], indirect=True)
async def test_a_full_disk(house: House, tmp_path: Path) -> None:
    """Redis cannot write a snapshot: doctor says so, and the page what to do."""
    gone = tmp_path / "gone"
    gone.mkdir()
    with redis.Redis.from_url(house.desk.redis.url, decode_responses=True) as client:
        client.config_set("dir", str(gone))
        gone.rmdir()
        client.bgsave()
        await eventually(
            lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", "the snapshot was written"
        )
        await asyncio.to_thread(house.desk.follow, "The disk of Redis is full")


async def test_a_slow_redis(house: House) -> None:
    """Redis answers late: doctor says how late, and what to look for."""
    with redis.Redis.from_url(house.desk.redis.url) as client:
        slow = True

        def pause() -> None:
            while slow:
                client.execute_command("CLIENT PAUSE", 60, "ALL")

        pausing = asyncio.create_task(asyncio.to_thread(pause))
        try:
            await asyncio.to_thread(house.desk.follow, "Redis is slow")
        finally:
            slow = False
            await pausing


async def test_clocks(house: House) -> None:
    """Doctor compares the clock of Redis with its own."""
    await asyncio.to_thread(house.desk.follow, "The clocks differ")


async def test_another_library(house: House) -> None:
    """Somebody has replaced the functions: doctor names the library, and frontends load their own once it is deleted."""
    with redis.Redis.from_url(house.desk.redis.url, decode_responses=True) as client:
        names = [each["library_name"] for each in map(as_map, client.function_list())]
        (name,) = (each for each in names if re.fullmatch("stanzaq_[0-9a-f]+", each))
        client.function_load(
            f"#!lua name={name}\nredis.register_function('{name}_x', function() return 1 end)", replace=True
        )
        await asyncio.to_thread(house.desk.follow, "The library in Redis is another one")
        client.function_delete(name)
        await declared(house.owner)


def as_map(found: Any) -> dict[str, Any]:  # noqa: ANN401  (what Redis answers)
    """Return a list of names and values as a map."""
    return found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))


async def test_frontend_hangs(house: House) -> None:
    """A frontend under SIGSTOP is missing from the list, does not answer, and the other has logged its name.

    Told to end, it ends when it wakes.
    """
    hung, other = house.frontends
    with redis.Redis.from_url(house.desk.redis.url, decode_responses=True) as client:
        names = set(client.zrange("sq:{service}:frontends", 0, -1))
        hung.process.pause()
        try:
            await eventually(lambda: "frontend is dead" in other.log, "nobody has missed it")
            await eventually(lambda: client.zcard("sq:{service}:frontends") == 1, "it is still on the list")
            (left,) = client.zrange("sq:{service}:frontends", 0, -1)
            (gone,) = names - {left}
            house.desk.words["1edc2653"] = gone
            # The port of the page, where nobody listens; a hanging frontend answers as little.
            await asyncio.to_thread(house.desk.follow, "A frontend hangs")
        finally:
            hung.process.resume()
    assert f'"frontend": "{gone}"' in other.log
    assert await hung.ended(PATIENCE_SECONDS) == 75
    (told,) = (json.loads(line) for line in hung.log.splitlines() if "disconnected by" in line)
    assert (told["frontend"], told["reason"]) == (gone, "disconnected by stanzaq")


async def test_failover(ejabberd: Ejabberd, tmp_path: Path) -> None:
    """A master dies: sentinels name another, the doctor finds it well, and the frontend is ready again and says so."""
    with RedisSentinels(1) as sentinels, _frontends(ejabberd, sentinels.url, 1) as (frontend,):
        old = sentinels.master()
        old.kill()
        await eventually(lambda: frontend.get("/readyz") != 200, "the frontend has noticed nothing")
        new = await asyncio.to_thread(sentinels.successor, old)
        await eventually(lambda: frontend.get("/readyz") == 200, "the frontend has not found the new master")
        desk = Desk(tmp_path, new, frontend._settings, sentinel_port=sentinels.sentinels[0].port)
        await asyncio.to_thread(desk.follow, "Redis fails over")
        assert '"heartbeat failed"' in frontend.log and '"heartbeat failed: recovered"' in frontend.log


async def test_functions(house: House) -> None:
    """The functions for redis-cli print what the page shows: by a node's name, by keys, and as a script."""
    await declared(house.owner, lock_seconds="300")
    assert (await house.slow.subscribe("jobs", 1)).error == ""
    for item in ("z", "a", "b"):
        assert (await house.owner.publish("jobs", item)).error == ""
    torn = await house.slow.next(Delivery)
    assert torn.item == "z"
    assert (await house.slow.unlock("jobs", "z", torn.token, "dead-letter='true' reason='torn'")).error == ""
    assert (await house.slow.next(Delivery)).item == "a"
    with redis.Redis.from_url(house.desk.redis.url) as client:
        await eventually(lambda: client.exists("sq:{jobs/dead}:node"), "there is no node for dead letters")

    async def count() -> int:
        return len(await house.owner.browse("jobs/dead"))

    await comes_to(count, 1)
    await asyncio.to_thread(house.desk.follow, "Functions for redis-cli")


async def test_names(house: House) -> None:
    """Every metric and every alert that the page names is there."""
    there = set(re.findall(r"^# HELP (\S+)", await asyncio.to_thread(house.frontends[0].metrics), re.MULTILINE))
    rules = (ROOT / "deploy" / "helm" / "stanzaq" / "templates" / "_rules.tpl").read_text()
    assert set(re.findall(r"`(stanzaq_[a-z_]+[a-z])`", PAGE)) <= there
    assert set(re.findall(r"`(Stanzaq[A-Za-z]+)`", PAGE)) <= set(re.findall(r"- alert: (\S+)", rules))
