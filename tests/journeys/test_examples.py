"""The programs in `examples/`, by the commands that they name, and pages that show commands, on the service of `stanzaq dev`."""

import asyncio
import os
import re
import runpy
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from frontends.tools.dev import Service
from stanzaq.pytest_plugin import stanzaq_service
from tests.journeys.reader import Reader
from tests.waiting import PATIENCE_SECONDS

__all__ = ["stanzaq_service"]

_ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = _ROOT / "examples"
_LIBRARY = (_ROOT / "docs" / "library.md").read_text()


@pytest.fixture(scope="module")
def directory(stanzaq_service: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the examples; only the ports are changed, which other programs may use here."""
    directory = tmp_path_factory.mktemp("examples")
    (directory / "examples").mkdir()
    for path in EXAMPLES.iterdir():
        text = path.read_text().replace("http://127.0.0.1:8080", stanzaq_service.http)
        (directory / "examples" / path.name).write_text(text.replace("127.0.0.1:5222", stanzaq_service.xmpp))
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


async def printed(directory: Path, name: str, most: int = 9) -> list[str]:
    """Run the commands of an example; return what the last one prints."""
    lines = list[str]()
    for command in commands(directory / "examples" / name)[:most]:
        process = await begun(directory, command)
        output, errors = await asyncio.wait_for(process.communicate(), 2 * PATIENCE_SECONDS)
        assert process.returncode == 0, errors.decode()
        lines = output.decode().splitlines()
    return lines


@asynccontextmanager
async def running(directory: Path, name: str) -> AsyncIterator[asyncio.StreamReader]:
    """Run a worker meanwhile; return its output. It ends in order when it and its children are signalled, as by a terminal."""
    (command,) = commands(directory / "examples" / name)
    worker = await begun(directory, command)
    assert worker.stdout is not None
    try:
        yield worker.stdout
        os.killpg(worker.pid, signal.SIGTERM)
        _rest, errors = await asyncio.wait_for(worker.communicate(), PATIENCE_SECONDS)
        assert b"Traceback" not in errors and b"rror" not in errors, errors.decode()
    finally:
        if worker.returncode is None:
            worker.kill()


async def queued(service: Service, queue: str) -> list[Any]:
    """Return the payloads in a queue."""
    account = service.jid("publisher"), service.password
    async with httpx.AsyncClient(auth=account, base_url=service.http) as web:
        answer = await web.get(f"/queues/{queue}?limit=200", headers={"Accept": "application/json"})
        return [(await web.get(each["content_href"])).json() for each in answer.json()["messages"]]


@pytest.mark.parametrize("name", ["worker.py", "curl_worker.sh", "js_worker.mjs"])
async def test_workers(directory: Path, name: str, stanzaq_service: Service) -> None:
    """Each works on what the publisher sends, and ends in order."""
    async with running(directory, name) as output:
        # The queue ignores repeats: each worker gets a picture of its own.
        publisher = directory / "examples" / "publisher.py"
        text = publisher.read_text()
        publisher.write_text(text.replace("cat.png", f"{name}.png"))
        try:
            assert await printed(directory, "publisher.py") == []
        finally:
            publisher.write_text(text)
        # Other tests publish there, too.
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (line := (await output.readline()).decode()) != f"working on {name}.png\n":
                assert line == "working on cat.png\n"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await queued(stanzaq_service, stanzaq_service.queue):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_retries(directory: Path) -> None:
    """A mail is sent at the second attempt, another is dead-lettered."""
    lines = await printed(directory, "retries.py")
    assert sorted(lines) == ["given up: nobody is no address", "sent to anna@example.org at attempt 2"]


async def test_ordered(directory: Path) -> None:
    """The orders of each customer are booked in their order."""
    lines = await printed(directory, "ordered.py")
    for customer in ("anna", "bert"):
        assert [line for line in lines if line.startswith(customer)] == [f"{customer} {number}" for number in range(3)]


async def test_device(directory: Path, stanzaq_service: Service) -> None:
    """A device that is killed and started again has each reading in the queue once."""
    create, work = commands(directory / "examples" / "device.py")
    curl = await begun(directory, create)
    assert await asyncio.wait_for(curl.wait(), PATIENCE_SECONDS) == 0
    device = await begun(directory, work)
    assert device.stdout is not None
    try:
        line = await asyncio.wait_for(device.stdout.readline(), PATIENCE_SECONDS)
    finally:
        device.kill()
    rest, _ = await asyncio.wait_for(device.communicate(), PATIENCE_SECONDS)
    # The kill may have cut the last line short.
    whole = (line + rest).decode().rpartition("\n")[0]
    stored = [*whole.splitlines(), *await printed(directory, "device.py")]
    readings = [f"stored {reading['at']}" for reading in await queued(stanzaq_service, "readings")]
    assert set(stored) <= set(readings) and len(set(readings)) == len(readings)
    assert len(stored) > 20


async def test_web(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is answered with the place of its result."""
    monkeypatch.setenv("STANZAQ_PASSWORD", "secret")
    await printed(directory, "web.py", 2)
    app = runpy.run_path(str(directory / "examples" / "web.py"))["app"]
    web = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://web")
    async with asyncio.timeout(PATIENCE_SECONDS), app.router.lifespan_context(app), web:
        asked = await web.post("/thumbnails", json={"file": "cat.png"})
        assert asked.status_code == 202
        while (found := await web.get(asked.json()["result"])).status_code == 404:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert found.json() == {"file": "small-cat.png"}


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
    assert sorted(listed) == sorted(path.name for path in EXAMPLES.iterdir() if path.name != "README.md")
