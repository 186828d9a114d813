"""A new version upgrades a store in place: beside the older one if that understands it, and otherwise after it has ended.

The new version is a copy of the program with one more format.
"""

import asyncio
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import redis

from broker import codec, keys
from broker.model.commands import Publish
from broker.model.items.items import Envelope
from broker.model.names import Jid
from broker.model.results import Published
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from broker.store_format import FORMAT
from frontends.tools.servers.process import free_port
from frontends.tools.servers.redis import RedisServer
from tests.admitting import ADMITTING
from tests.contract.test_stores import dump_file, read
from tests.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
NEW = FORMAT + 1
ALICE = Jid("alice@example.org")
USER = "alice@example.org:secret"

NO_STEPS = "STEPS: Final[tuple[Step, ...]] = ()"
STEPS = """async def _rename(server: Server, store: NodeStore, name: str) -> None:
    record = await store.read(name)
    for partition in record.partitions if record else ():
        now = keys.of_partition("KEY", partition)
        before = now.removesuffix("KEY") + "successors"
        if now != before and await server.command("EXISTS", before):
            await server.command("RENAME", before, now)


STEPS: Final[tuple[Step, ...]] = (Step(FORMAT, _rename),)"""


def new_version(directory: Path, least: int) -> Path:
    """Copy the program, with a new format; if older programs do not understand it, a key has another name."""
    tree, key = directory / "new", "successors" if least == FORMAT else "laterversions"
    for name in ("broker", "frontends", "lua"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    for path in (*tree.glob("broker/**/*.py"), *tree.glob("lua/**/*.lua")):
        path.write_text(path.read_text().replace("successors", key))
    changes = {
        "store_format.py": {
            f"FORMAT: Final = {FORMAT}": f"FORMAT: Final = {NEW}",
            f"LEAST: Final = {FORMAT}": f"LEAST: Final = {least}",
        },
        "redis_core/maintenance/upgrades.py": {NO_STEPS: STEPS.replace("KEY", key)},
    }
    for name, lines in changes.items():
        path = tree / "broker" / name
        text = path.read_text()
        for before, after in lines.items():
            assert text.count(before) == 1
            text = text.replace(before, after)
        path.write_text(text)
    return tree


class Door:
    """`stanzaq serve rest` of one version."""

    def __init__(self, tree: Path, url: str, log: Path) -> None:
        """Start it."""
        self.port, self.health = free_port(), free_port()
        passwords = f"alice@example.org:{bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}"
        named = {
            "REDIS_URL": url,
            "HTTP_BIND": f"127.0.0.1:{self.port}",
            "HTTP_PASSWORDS": passwords,
            "METRICS_BIND": f"127.0.0.1:{self.health}",
        }
        own = {name: value for name, value in os.environ.items() if not name.startswith("STANZAQ_")}
        own |= {f"STANZAQ_{name}": value for name, value in named.items()} | {"PYTHONPATH": str(tree)}
        command = [sys.executable, "-m", "frontends.cli", "serve", "rest"]
        with log.open("a") as said:
            self.process = subprocess.Popen(command, env=own, cwd=tree, stderr=said)

    def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        """Ask for something, and return the JSON of the answer."""
        headers = {"Authorization": f"Basic {b64encode(USER.encode()).decode()}", "Accept": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        if data:
            request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310
            text = answer.read()
        return json.loads(text) if text else None

    def state(self) -> tuple[int, str]:
        """Return what `/readyz` says."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/readyz", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def ready(self) -> bool:
        """Return whether it serves."""
        assert self.process.poll() is None, self.process.returncode
        return self.state()[0] == 200

    def stop(self) -> None:
        """End it in order."""
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)


def eventually(true: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


Start = Callable[[Path], Door]


@pytest.fixture
def client(valkey: RedisServer) -> Iterator[redis.Redis]:
    """Give an empty Redis."""
    with redis.Redis.from_url(valkey.url, decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.fixture
def start(valkey: RedisServer, client: redis.Redis, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a version's door; all are stopped at the end."""
    doors: list[Door] = []

    def started(tree: Path) -> Door:
        doors.append(Door(tree, valkey.url, tmp_path / "log"))
        return doors[-1]

    yield started
    for door in doors:
        door.stop()


def formats(client: redis.Redis) -> dict[str, Any]:
    """Return the formats of the store and of its nodes."""
    nodes: Any = client.zrange(keys.of_service("all_nodes"), 0, -1)
    found: dict[str, Any] = {name: client.hget(keys.of_node("node", name), "format") for name in nodes}
    store: Any = client.hgetall(keys.of_service("store"))
    return {**found, **store}


def prepare(door: Door, url: str) -> str:
    """Let an item be held, and a later version of it wait; return the address of what is held."""
    door.ask("PUT", "/queues/jobs", {"options": {"stanzaq#lock_seconds": 600}})
    asyncio.run(publish(url, "first"))
    lease = door.ask("POST", "/subscriptions", {"destinations": ["jobs"], "prefetch": 1, "lease": 3600})
    (held,) = door.ask("GET", lease["href"])["messages"]
    asyncio.run(publish(url, "later"))
    return str(held["href"])


async def publish(url: str, text: str) -> None:
    """Publish a version of an item, as the older program."""
    core = RedisCore(CommandSettings(**ADMITTING, redis_url=url), None)
    await core.start()
    envelope = codec.pack(Envelope(text.encode(), "text/plain"))
    assert isinstance(await core.ask(Publish("jobs", ALICE, "a", envelope, len(text))), Published)
    await core.stop()


def test_beside(start: Start, client: redis.Redis, tmp_path: Path, valkey: RedisServer) -> None:
    """Where the older version understands the new format both serve, and one may go back and forth."""
    tree = new_version(tmp_path, least=FORMAT)
    old = start(ROOT)
    eventually(old.ready)
    held = prepare(old, valkey.url)
    assert formats(client) == {"jobs": str(FORMAT), "format": str(FORMAT), "least": str(FORMAT)}
    new = start(tree)
    eventually(new.ready)
    eventually(lambda: formats(client)["jobs"] == str(NEW))
    assert old.ask("POST", "/queues/jobs", "to the older one") and new.ask("POST", "/queues/jobs", "to the newer one")
    # A node of the older version comes while it serves; the store is not upgraded before that has ended.
    old.ask("PUT", "/queues/more", {})
    assert formats(client)["format"] == str(FORMAT)
    old.stop()
    new.ask("DELETE", held)
    eventually(
        lambda: formats(client) == {"jobs": str(NEW), "more": str(NEW), "format": str(NEW), "least": str(FORMAT)}
    )
    # Back to the older version, whose nodes are upgraded when the newer one returns.
    new.stop()
    old = start(ROOT)
    eventually(old.ready)
    old.ask("PUT", "/queues/last", {})
    assert formats(client)["format"] == str(FORMAT)
    old.stop()
    new = start(tree)
    eventually(lambda: formats(client)["format"] == formats(client)["last"] == str(NEW))
    eventually(new.ready)
    assert len(new.ask("GET", "/queues/jobs")["messages"]) == 3


def test_after(start: Start, client: redis.Redis, tmp_path: Path, valkey: RedisServer) -> None:
    """Where it does not, the older one drains and ends with 75, and does not start again; then the new one serves."""
    tree = new_version(tmp_path, least=NEW)
    old = start(ROOT)
    eventually(old.ready)
    held = prepare(old, valkey.url)
    # As if a process had died half way through an upgrade.
    client.hset(keys.of_service("upgrade"), "by", "dead")
    client.pexpire(keys.of_service("upgrade"), 500)
    # And as if a frontend had died before it had made the node of this name.
    client.zadd(keys.of_service("all_nodes"), {"nobody": 1})
    new = start(tree)
    assert old.process.wait(PATIENCE_SECONDS) == 75
    eventually(new.ready)
    client.zrem(keys.of_service("all_nodes"), "nobody")
    assert formats(client) == {"jobs": str(NEW), "format": str(NEW), "least": str(NEW)}
    assert start(ROOT).process.wait(PATIENCE_SECONDS) == 2
    assert f"install a version of stanzaq that keeps format {NEW}" in " ".join((tmp_path / "log").read_text().split())
    new.ask("DELETE", held)
    lease = new.ask("POST", "/subscriptions", {"destinations": ["jobs"], "prefetch": 1, "lease": 60})
    (found,) = new.ask("GET", f"{lease['href']}?wait=5")["messages"]
    assert found["text"] == "later"


class Load:
    """A publisher and a worker, which use whatever door answers, each request until it is answered."""

    def __init__(self) -> None:
        """Have no door yet."""
        self.doors: list[Door] = []
        self.published: list[str] = []
        self.ended = threading.Event()

    def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        """Ask one door after the other, until one answers, or refuses for good."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            for door in list(self.doors):
                try:
                    return door.ask(method, path, body)
                except urllib.error.HTTPError as fault:
                    with fault:
                        if fault.code in {404, 410}:
                            return None
                except (OSError, http.client.HTTPException):
                    continue
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def publish(self) -> None:
        """Publish items with ids until it is ended."""
        while not self.ended.is_set():
            item = f"i{len(self.published)}"
            self.ask("POST", f"/queues/load?guid={item}", item)
            self.published.append(item)
            time.sleep(0.005)

    def work(self, queue: str, enough: Callable[[set[str]], bool]) -> set[str]:
        """Work until enough is done; returns the ids of what is done."""
        lease = self.ask("POST", "/subscriptions", {"destinations": [queue], "prefetch": 20, "lease": 60})["href"]
        done = set[str]()
        while not enough(done):
            for message in self.ask("GET", f"{lease}?wait=1")["messages"]:
                self.ask("DELETE", message["href"])
                done.add(message["id"])
        return done

    def all_done(self, done: set[str]) -> bool:
        """Return whether all is done that was published, and no more comes."""
        return self.ended.is_set() and done >= set(self.published)


def are_done(count: int, done: set[str]) -> bool:
    """Return whether so many are done."""
    return len(done) >= count


@pytest.mark.soak
def test_under_load(start: Start, client: redis.Redis, tmp_path: Path) -> None:
    """Issue 56: a dump goes forth and back, twice, under load: each item that is published is done, then each of the dump."""
    counts = read(dump_file(FORMAT), client)
    tree, load = new_version(tmp_path, least=FORMAT), Load()
    old = start(ROOT)
    eventually(old.ready)
    old.ask("PUT", "/queues/load", {"options": {"stanzaq#lock_seconds": 5}})
    load.doors.append(old)
    with ThreadPoolExecutor(2) as pool:
        publishing, working = pool.submit(load.publish), pool.submit(load.work, "load", load.all_done)
        for _ in range(2):
            new = start(tree)
            eventually(new.ready)
            load.doors.append(new)
            eventually(lambda: formats(client)["load"] == str(NEW))
            load.doors.remove(old)
            old.stop()
            eventually(lambda: formats(client)["format"] == str(NEW))
            old = start(ROOT)
            eventually(old.ready)
            load.doors.append(old)
            load.doors.remove(new)
            new.stop()
        load.ended.set()
        publishing.result(PATIENCE_SECONDS)
        done = working.result(PATIENCE_SECONDS)
    # One whose answer was lost with its door may have been handed out twice, but was acknowledged by one of them.
    assert done == set(load.published) and len(load.published) > 200
    for queue, count in counts.items():
        # Of jobs an item has expired, and bounded has a rate for each key.
        if count and queue not in {"jobs", "bounded"}:
            assert len(load.work(queue, partial(are_done, count))) == count
