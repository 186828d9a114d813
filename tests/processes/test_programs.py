"""Type checkers find nothing in the programs of README, `docs/` and `examples/`, nor in handlers and hooks of every kind."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYRIGHT = ROOT / ".venv" / "tools" / "node_modules" / ".bin" / "pyright"

ALL_KINDS = '''\
"""What handlers, hooks and publishers may be."""
import functools
from collections.abc import AsyncIterator
from stanzaq import CallNext, Job, Publisher, Queue, Retry, Task, Worker, chain, group, sync
from stanzaq.metrics import measured
from stanzaq.telemetry import traced

worker = Worker("xmpp://worker@example.org")
worker.middleware(traced)
worker.middleware(measured)

@worker.middleware
async def checked(job: Job[dict[str, int]], call_next: CallNext) -> None:
    if job.payload["total"]:
        await call_next(job)

@worker.lifespan
async def open_store() -> AsyncIterator[list[str]]:
    yield []

@worker.on_start
async def open_list() -> list[str]:
    return []

@worker.task("any")
async def of_any(job: Job) -> None:
    job.state.append(job.payload["file"])
    await job.progress(0.5, "half")
    await job.publish("next", job.id, id=job.then("last", job.id, id="one", ttl="1h"), keep=True)
    await job.publish("next", job.id, reply=True)  # type: ignore[call-arg]
    await job.send(coroutine, {"total": 1}, delay="1m")
    await job.send(coroutine, "one")  # type: ignore[misc]
    job.then("next", job.id, after=["one"])  # type: ignore[call-arg]

@worker.task("coroutine", retry=Retry(attempts=5), timeout="5m")
async def coroutine(job: Job[dict[str, int]]) -> dict[str, int]:
    return job.payload

@worker.task("thread")
def in_a_thread(job: Job[str]) -> int:
    return len(job.payload)

@worker.task("process", run_in="process")
def in_a_process(job: Job[list[int]]) -> None:
    job.payload.sort()

def add(job: Job[int], more: int) -> int:
    return job.payload + more

worker.task("partial")(functools.partial(add, more=1))
worker.task("lambda")(lambda job: job.payload)

class Shop:
    def __init__(self) -> None:
        worker.task("method")(self.sell)

    async def sell(self, job: Job[int]) -> bool:
        return await coroutine_that_was_decorated(job) > 0

@worker.task("none")  # type: ignore[arg-type]  # it takes no job
async def none() -> None: ...

@worker.task("again")
async def coroutine_that_was_decorated(job: Job[int]) -> int:
    return job.payload

async def call(publisher: Publisher, blocking: sync.Publisher) -> int:
    await coroutine.on(publisher).send({"total": 1}, delay="10m", key="a")
    await coroutine.send({"total": ""})  # type: ignore[dict-item]
    await in_a_thread.send(1)  # type: ignore[arg-type]
    await in_a_thread.send("text", dleay="10m")  # type: ignore[call-arg]
    declared = Task[list[int], str]("declared")
    await declared.on(publisher).call(["a"])  # type: ignore[list-item]
    text: str = await declared.on(publisher).call([1]) + sync.Task(declared).on(blocking).call([1], timeout="1s")
    sync.Task(declared).send([text])  # type: ignore[list-item]
    totals: list[int] = await group(in_a_thread.item("a"), in_a_thread.item("b")).call()
    total: int = await chain(coroutine.item({"a": 1}), coroutine, Task[dict[str, int], int]("last")).call() + sum(totals)
    chain(in_a_thread.item("a"), in_a_thread)  # type: ignore[misc]
    chain(in_a_thread.item("a"), in_a_thread.using(key="a"))  # type: ignore[misc]
    total += await chain(in_a_thread.item("a"), Task[int, int]("last").using(ttl="1h", key="a")).on(publisher).call()
    coroutine.using(after=["a"])  # type: ignore[call-arg]
    await publisher.declare(Queue("jobs", fair="key", lock="10m", max_items=5), create="update")
    Queue("jobs", fair="keys")  # type: ignore[arg-type]
    Queue("jobs", rates="1/s")  # type: ignore[call-arg]
    return await in_a_thread.call(text) + in_a_thread(Job(**{})) + total

@worker.schedule([1], every="1h", overlap="skip")
@worker.task(Queue("scheduled", ordered=True), name="first")
def scheduled(job: Job[list[int]]) -> int:
    return sum(job.payload)

async def publish(publisher: Publisher, blocking: sync.Publisher) -> str:
    reply = await publisher.publish("any", {"file": "cat.png"}, reply=True)
    total: int = await reply.result("10m")
    total += blocking.publish("any", total, reply=True).result(5)
    await publisher.publish("any", total, delay=[1])  # type: ignore[call-overload]
    blocking.publish("any", total, dleay="10m", timeout=5)  # type: ignore[call-overload]
    return await publisher.publish("any", total, at=None, keep=True) + blocking.publish("any", "text", timeout="5s")
'''


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with all programs, each a file; those in documents begin with their names."""
    directory = tmp_path_factory.mktemp("programs")
    (directory / "examples").mkdir()
    pages = "".join(path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    found = re.findall(r"```python\n(# (\w+\.py).*?)```", pages, re.DOTALL)
    assert {"worker.py", "hooks.py", "test_service.py", "sender.py"} <= {name for _, name in found}
    for program, name in found:
        # Django has no types.
        if "from django" not in program:
            (directory / name).write_text(program)
    for path in (ROOT / "examples").glob("*.py"):
        (directory / "examples" / path.name).write_text(path.read_text())
    (directory / "all_kinds.py").write_text(ALL_KINDS)
    return directory


def _check(programs: Path, *command: str | Path) -> str:
    done = subprocess.run([*command, "."], cwd=programs, capture_output=True, text=True, check=False, timeout=200)
    return done.stdout + done.stderr


def test_mypy(programs: Path) -> None:
    """`mypy --strict` finds nothing."""
    # What it knows of the libraries stays from one run to the next.
    where = ["--config-file=", f"--cache-dir={ROOT / '.mypy_cache' / 'programs'}", "--explicit-package-bases"]
    said = _check(programs, sys.executable, "-m", "mypy", "--strict", *where)
    assert said.startswith("Success"), said


@pytest.mark.soak
def test_pyright(programs: Path) -> None:
    """Pyright finds nothing."""
    said = _check(programs, PYRIGHT, "--pythonpath", sys.executable)
    assert said.startswith("0 errors, 0 warnings"), said


@pytest.mark.soak
def test_pyright_finds_what_is_wrong(tmp_path: Path) -> None:
    """What mypy is told to ignore is an error for pyright too, such as a payload of another type, and nothing else is."""
    (tmp_path / "all_kinds.py").write_text(re.sub(r"  # type: ignore.*", "", ALL_KINDS))
    said = json.loads(_check(tmp_path, PYRIGHT, "--pythonpath", sys.executable, "--outputjson"))
    found = {each["range"]["start"]["line"] for each in said["generalDiagnostics"]}
    assert found == {number for number, line in enumerate(ALL_KINDS.splitlines()) if "type: ignore" in line}
