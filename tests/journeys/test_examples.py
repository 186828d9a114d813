"""The programs in `examples/`, by the commands that they name, and pages that show commands, on the service of `stanzaq dev`."""

import asyncio
import os
import re
import runpy
import signal
import sqlite3
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import httpx
import msgspec
import psutil
import pytest
from aiohttp import web
from fastapi import FastAPI
from PIL import Image

from frontends.tools.dev import Service
from stanzaq import Job, Publisher, Worker
from stanzaq.pytest_plugin import stanzaq_service
from stanzaq.transport.interface import Outgoing
from tests.journeys.reader import Reader
from tests.network import network
from tests.waiting import PATIENCE_SECONDS

__all__ = ["stanzaq_service"]

_ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = _ROOT / "examples"
_PROGRAMS = [path for path in EXAMPLES.iterdir() if path.suffix in {".mjs", ".py", ".sh"}]
T = TypeVar("T")
_LIBRARY = (_ROOT / "docs" / "library.md").read_text()


@pytest.fixture(scope="module")
def directory(stanzaq_service: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the examples; only the ports are changed, which other programs may use here."""
    directory = tmp_path_factory.mktemp("examples")
    http = stanzaq_service.http.removeprefix("http://")
    for path in _PROGRAMS:
        text = path.read_text().replace("127.0.0.1:8080", http).replace("127.0.0.1:5222", stanzaq_service.xmpp)
        (directory / path.name).write_text(text)
    (directory / "node_modules").symlink_to(_ROOT / ".venv" / "tools" / "node_modules")
    return directory


def commands(path: Path) -> list[str]:
    """Return the commands in the comment of an example, without those that install something."""
    comment = re.sub(r"^(#|//) ?", "", path.read_text(), flags=re.MULTILINE)
    found = re.findall(r"^\$ ((?:.*\\\n)*.*)$", comment, re.MULTILINE)
    return [command for command in found if " install " not in command]


async def begun(directory: Path, command: str) -> Process:
    """Run a command as a shell does; `python` is ours."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return await asyncio.create_subprocess_exec(
        *("bash", "-c", f"exec env {command}"),
        cwd=directory,
        stdout=PIPE,
        stderr=PIPE,
        env=os.environ | {"PATH": path},
        start_new_session=True,
    )


async def outcome(directory: Path, command: str) -> list[str]:
    """Run a command; return what it prints."""
    process = await begun(directory, command)
    output, errors = await asyncio.wait_for(process.communicate(), 2 * PATIENCE_SECONDS)
    assert process.returncode == 0, errors.decode()
    return output.decode().splitlines()


async def printed(directory: Path, name: str) -> list[str]:
    """Run the commands of an example; return what the last one prints."""
    lines = list[str]()
    for command in commands(directory / name):
        lines = await outcome(directory, command)
    return lines


@asynccontextmanager
async def running(directory: Path, name: str, *, fails: bool = False) -> AsyncIterator[Process]:
    """Run a worker meanwhile, the first command. It ends in order when it and its children are signalled, as by a terminal.

    What it logs is of no failure, unless jobs are to fail.
    """
    worker = await begun(directory, commands(directory / name)[0])
    try:
        yield worker
        os.killpg(worker.pid, signal.SIGTERM)
        _rest, errors = await asyncio.wait_for(worker.communicate(), PATIENCE_SECONDS)
        assert fails or (b"Traceback" not in errors and b"rror" not in errors), errors.decode()
    finally:
        if worker.returncode is None:
            os.killpg(worker.pid, signal.SIGKILL)


async def until_ready(worker: Process, queue: str) -> None:
    """Wait until a worker is ready for items of a queue."""
    assert worker.stderr is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        while f"ready for items of {queue}," not in (await worker.stderr.readline()).decode():
            pass


async def until(find: Callable[[], T]) -> T:
    """Wait until something is so, and return it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := find()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return found


async def until_empty(service: Service, queue: str) -> None:
    """Wait until all items of a queue are completed."""
    account = service.jid("publisher"), service.password
    async with httpx.AsyncClient(auth=account, base_url=service.http) as web, asyncio.timeout(PATIENCE_SECONDS):
        while (await web.get(f"/queues/{queue}", headers={"Accept": "application/json"})).json()["messages"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("name", ["worker.py", "curl_worker.sh", "js_worker.mjs"])
async def test_workers(directory: Path, name: str, stanzaq_service: Service) -> None:
    """Each works on what the publisher sends, and ends in order."""
    async with running(directory, name) as worker:
        # The queue ignores repeats: each worker gets a picture of its own.
        publisher = directory / "publisher.py"
        text = publisher.read_text()
        publisher.write_text(text.replace("cat.png", f"{name}.png"))
        try:
            assert await printed(directory, "publisher.py") == []
        finally:
            publisher.write_text(text)
        # Other tests publish there, too.
        assert worker.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (line := (await worker.stdout.readline()).decode()) != f"working on {name}.png\n":
                assert line == "working on cat.png\n"
        await until_empty(stanzaq_service, stanzaq_service.queue)


async def test_ordered(directory: Path) -> None:
    """The orders of each customer are booked in their order."""
    lines = await printed(directory, "ordered.py")
    for customer in ("anna", "bert"):
        assert [line for line in lines if line.startswith(customer)] == [f"{customer} {number}" for number in range(3)]


async def test_thumbnails(directory: Path) -> None:
    """A picture whose process is killed, and one that takes too long, are made small by the next process."""
    program, cat, dog = directory / "thumbnails.py", directory / "cat.png", directory / "dog.png"
    program.write_text(program.read_text().replace('"30s"', '"1s"'))

    def is_small(place: Path) -> bool:
        with suppress(OSError), Image.open(place.with_suffix(".small.png")) as picture:
            return picture.size == (128, 64)
        return False

    for place in (cat, dog):
        # The process waits for a picture that never comes.
        os.mkfifo(place)
        Image.new("RGB", (512, 256)).save(place.with_suffix(".later.png"))
    async with running(directory, program.name, fails=True) as worker:
        await until_ready(worker, "thumbnails")
        assert await outcome(directory, commands(program)[1]) == []
        waiting = [await asyncio.to_thread(os.open, place, os.O_WRONLY) for place in (cat, dog)]
        dog.with_suffix(".later.png").rename(dog)
        (reader,) = await until(lambda: readers(worker.pid, cat))
        cat.with_suffix(".later.png").rename(cat)
        with suppress(psutil.NoSuchProcess):
            reader.kill()
        await until(lambda: is_small(cat) and is_small(dog))
    for each in waiting:
        os.close(each)


def readers(worker: int, place: Path) -> list[psutil.Process]:
    """Return the processes of a worker that have opened a file."""
    found = []
    for process in psutil.Process(worker).children(recursive=True):
        with suppress(OSError):
            found += [process for each in Path(f"/proc/{process.pid}/fd").iterdir() if each.readlink() == place]
    return found


async def test_webhooks(directory: Path, stanzaq_service: Service) -> None:
    """A customer's limits hold, others do not wait for it, failures are tried again, and refusals are not."""
    hits, busy, most, goes_on = defaultdict[str, list[float]](list), 0, 0, asyncio.Event()

    async def hear(request: web.Request) -> web.Response:
        nonlocal busy, most
        customer = request.match_info["customer"]
        hits[customer].append(time.monotonic())
        if customer == "anna":
            busy += 1
            most = max(most, busy)
            await goes_on.wait()
            busy -= 1
        fails = {"cora": 503 if len(hits["cora"]) == 1 else 200, "dora": 404}
        return web.Response(status=fails.get(customer, 200))

    anna = " ".join(["anna", "URL/anna", *map(str, range(25))])
    send = commands(directory / "webhooks.py")[1].replace("anna http://127.0.0.1:8000/hook first second third", anna)
    async with (
        serving(hear) as url,
        running(directory, "webhooks.py", fails=True) as worker,
        Publisher(**stanzaq_service.account("worker")) as publisher,
    ):
        await until_ready(worker, "webhooks")
        assert await outcome(directory, send.replace("URL", url)) == []
        await until(lambda: busy == 5)
        for customer in ("bert", "cora", "dora"):
            await publisher.publish("webhooks", {"url": f"{url}/{customer}", "event": "one"}, key=customer)
        await until(lambda: hits["bert"] and len(hits["cora"]) == 2 and hits["dora"])
        assert busy == most == 5
        goes_on.set()
        began = time.monotonic()
        await until(lambda: len(hits["anna"]) == 25)
        # At most eleven of the other twenty at once, and then ten a second.
        assert most == 5 and hits["anna"][-1] - began > 0.8
    assert [len(hits[customer]) for customer in ("bert", "cora", "dora")] == [1, 2, 1]


@asynccontextmanager
async def serving(hear: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """Serve the hooks of customers meanwhile; return the URL before their names."""
    server = web.Application()
    server.router.add_post("/{customer}", hear)
    runner = web.AppRunner(server)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield "http://{}:{}".format(*runner.addresses[0])
    finally:
        await runner.cleanup()


async def test_devices(directory: Path, stanzaq_service: Service) -> None:
    """Of 200 devices whose line is cut and that are killed, each reading is in the queue once."""
    program, measured = directory / "devices.py", list[tuple[str, str]]()
    create, measure = commands(program)
    await outcome(directory, create)
    owner = Worker(**stanzaq_service.account("publisher"), concurrency=200)

    @owner.task("readings")
    async def store(job: Job[dict[str, float]]) -> None:
        measured.append((job.id, f"{job.payload['device']} {job.payload['at']}"))

    storing = asyncio.create_task(owner.serve())
    with network(1) as (link,):
        port = link.lead(int(stanzaq_service.http.rpartition(":")[2]))
        text = program.read_text().replace(stanzaq_service.http.removeprefix("http://"), f"127.0.0.1:{port}")
        program.write_text(text.replace("READINGS = 200, 10", "READINGS = 200, 2").replace("sleep(1)", "sleep(0.5)"))
        devices = await begun(directory, measure)
        try:
            await until(lambda: measured)
            # What is under way is lost, requests and answers.
            link.hang()
            await until(link.held.is_set)
            link.cut()
            link.heal()
        finally:
            os.killpg(devices.pid, signal.SIGKILL)
        await devices.communicate()
        await until_empty(stanzaq_service, "readings")
        stored, kept = {item for item, _ in measured}, left(directory / "devices")
        assert await outcome(directory, measure) == []
        await until_empty(stanzaq_service, "readings")
    owner.stop()
    await storing
    assert kept and stored | kept < {item for item, _ in measured}
    assert len(measured) == len({reading for _, reading in measured}) == len(stored | kept) + 400
    assert left(directory / "devices") == set()


def left(directory: Path) -> set[str]:
    """Return the ids of the items in outboxes."""
    found = set()
    for path in directory.glob("*.db"):
        with closing(sqlite3.connect(path)) as outbox:
            rows = outbox.execute("SELECT record FROM items").fetchall()
        found |= {msgspec.msgpack.decode(record, type=Outgoing).item for (record,) in rows}
    return found


async def test_nightly(directory: Path, stanzaq_service: Service) -> None:
    """The sum is of 50 results, although the worker is killed meanwhile; and the next night is at three in Berlin."""
    (command,) = commands(directory / "nightly.py")
    killed = await begun(directory, command)
    async with Publisher(**stanzaq_service.account("worker")) as publisher:
        await until_ready(killed, "nights")
        await publisher.publish("nights", None, id="tonight")
        assert killed.stdout is not None
        await asyncio.wait_for(killed.stdout.readline(), PATIENCE_SECONDS)
        os.killpg(killed.pid, signal.SIGKILL)
        await killed.communicate()
        async with running(directory, "nightly.py") as worker, asyncio.timeout(PATIENCE_SECONDS):
            assert worker.stdout is not None
            while (line := (await worker.stdout.readline()).decode()).startswith("counting"):
                pass
        (night,) = await publisher.schedules("nights")
    assert line == f"50 shops sold {sum(len(f'shop {number}') for number in range(50))}\n"
    assert night.next is not None and night.next.astimezone(ZoneInfo("Europe/Berlin")).hour == 3


async def test_web(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is answered with the place of its result, and another web server tells it."""
    monkeypatch.setenv("STANZAQ_PASSWORD", "secret")
    first, second = (runpy.run_path(str(directory / "web.py"))["app"] for _ in range(2))
    async with running(directory, "web.py") as worker, client_of(first) as ask, client_of(second) as tell:
        await until_ready(worker, "uploads")
        asked = await ask.post("/thumbnails", json={"file": "cat.png"})
        assert asked.status_code == 202
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (found := (await tell.get(asked.json()["result"])).json()) == {"state": "waiting"}:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    assert found == {"state": "done", "file": "small-cat.png"}


@asynccontextmanager
async def client_of(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of a web server, which runs meanwhile."""
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://web") as client,
    ):
        yield client


async def test_the_fixture(stanzaq_service: Service) -> None:
    """The test in library.md that uses the fixture passes."""
    (program,) = re.findall(r"```python\n# test_service\.py\n(.*?)```", _LIBRARY, re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)  # noqa: S102
    await names["test_publish"](stanzaq_service)


@pytest.mark.parametrize("name", ["tutorial", "howto/devices"])
async def test_pages(name: str, stanzaq_service: Service, tmp_path: Path) -> None:
    """Every program and command of the page does what is said of it."""
    page = (_ROOT / "docs" / f"{name}.md").read_text()
    reader = Reader(tmp_path, stanzaq_service)
    try:
        for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
            await reader.follow(language, block)
    finally:
        await reader.stop()


def test_all_are_listed() -> None:
    """The list of examples names each."""
    listed = re.findall(r"^\| \[(\S+)\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in _PROGRAMS)
