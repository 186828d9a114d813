"""House rules that ruff and import-linter cannot check: the rooms in the docs, and forbidden content of files."""

import ast
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

MODULES = sorted(path for package in ("broker", "frontends", "stanzaq") for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def _contract(name: str) -> dict[str, Any]:
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    return next(contract for contract in contracts if contract["id"] == name)


def _children(package: str) -> set[str]:
    """Name the modules and packages directly inside a package."""
    paths = (ROOT / package).iterdir()
    return {path.stem for path in paths if path.suffix == ".py" or (path / "__init__.py").is_file()} - {"__init__"}


def test_both_sides_are_listed_whole() -> None:
    """A new door, or a new part of the core, cannot evade the rule that only the composer sees both sides."""
    contract = _contract("sides")
    below = _children("frontends") - {"cli", "commands", "compose", "terminal", "tools", "version"} | {"tools.servers"}
    assert {f"frontends.{name}" for name in below} == set(contract["source_modules"])
    # The parts of the core that a door may see: its model, envelope and types of payloads, selectors, tasks, keys of tokens.
    seen = {"model", "codec", "payloads", "selectors", "tasks", "token_keys"}
    hidden = {f"broker.{name}" for name in _children("broker") - seen}
    assert hidden == {name for name in contract["forbidden_modules"] if name.startswith("broker.")}


@pytest.mark.parametrize("place", ["broker/redis_core", "lua", "frontends/xmpp", "frontends/rest", "frontends/amqp"])
def test_rooms_are_in_the_docs(place: str) -> None:
    """docs/architecture.md lists every room of the core, of its operations and of each door once, and no other."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition(f"| room in `{place}` |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    listed = sorted(name for row in rows for name in re.findall(r"`(\w+)`", row))
    of_lua = {path.parent.name for path in (ROOT / "lua").rglob("*.lua")}
    # The files of the web page are no Python.
    of_python = _children(place) | ({"ui"} if place == "frontends/rest" else set())
    assert listed == sorted(of_lua if place == "lua" else of_python)


@pytest.mark.parametrize("package", ["broker", "frontends"])
def test_places_are_in_the_docs(package: str) -> None:
    """docs/architecture.md says of every module and package of both halves what it knows, and names no other."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition("| place | knows | must not know |")[2].partition("\n\n")[0]
    listed = re.findall(rf"`{package}/(\w+)(?:\.py)?`", "".join(line.split("|")[1] for line in table.splitlines()[2:]))
    assert sorted(listed) == sorted(_children(package))


@pytest.mark.parametrize("name", ["dependencies", "optional-dependencies"])
def test_model_is_shut_to_every_dependency(name: str) -> None:
    """A new dependency of the project is one that the model may not import."""
    server = tomllib.loads((ROOT / "server" / "pyproject.toml").read_text())
    lines: list[str] = []
    for listed in (PROJECT["project"][name], server["project"][name]):
        listing = isinstance(listed, list)
        lines += listed if listing else [line for extra in set(listed) - {"dev", "release"} for line in listed[extra]]
    imported = {re.split(r"[^\w-]", line)[0].replace("-", "_") for line in lines} - {"stanzaq_server"}
    assert imported <= set(_contract("model")["forbidden_modules"])


@pytest.mark.parametrize("package", ["broker", "frontends", "stanzaq"])
def test_directories_are_packages(package: str) -> None:
    """Every directory with Python in it is a package: import-linter, mypy and the wheel skip others."""
    directories = {path.parent for path in MODULES if path.is_relative_to(ROOT / package)}
    assert all((directory / "__init__.py").is_file() for directory in directories)


STARTS_TASKS = {
    "broker/tasks.py": "the one place: what it starts is logged when it fails, and whoever waits for it is answered",
    "frontends/compose.py": "whatever fails ends the process",
    "frontends/stopping.py": "they are awaited where they are started",
    "stanzaq/command/several.py": "awaited where they are started",
    "stanzaq/xep_qos/plugin.py": "it is used without anything else of the project",
    "frontends/tools/demo/client.py": "awaited where it is started",
    "frontends/tools/demo/play.py": "whatever fails ends the play",
    "stanzaq/publisher/publisher.py": "awaited where it is started",
    "stanzaq/publisher/connected.py": "whoever keeps the connection awaits it",
    "stanzaq/worker/returned.py": "awaited where it is started, in a future's own loop",
    "stanzaq/sync.py": "awaited where it is started",
    "stanzaq/worker/batches.py": "it tells each of its jobs how it has ended",
    "stanzaq/worker/runs.py": "a run answers for its handler, and tells the service how it ended",
    "stanzaq/testing/broker.py": "awaited where it is started",
    "stanzaq/testing/diverted.py": "what begins in another thread is awaited in the caller's",
    "stanzaq/testing/late.py": "awaited where the late job is let go",
    "stanzaq/worker/worker.py": "awaited where it is started",
    "stanzaq/http/worker.py": "awaited where they are started",
    "stanzaq/transport/gatherer.py": "it answers its rows however it ends",
    "stanzaq/xmpp/connection.py": "awaited where it is started",
    "stanzaq/xmpp/worker.py": "awaited where they are started",
}
"""Where tasks may be started, and why."""


def _starts_tasks(path: Path) -> bool:
    starts = {"create_task", "ensure_future", "run_coroutine_threadsafe", "TaskGroup"}
    text = path.read_text()
    if not any(name in text for name in starts):
        return False
    called = (node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return any(getattr(each, "attr", getattr(each, "id", "")) in starts for each in called)


def test_tasks_are_started_in_one_place() -> None:
    """Guarantee 8: a failed background task always answers its waiters, since all start in one place."""
    assert {str(path.relative_to(ROOT)) for path in MODULES if _starts_tasks(path)} == set(STARTS_TASKS)


def test_names() -> None:
    """A module is named after its subject."""
    empty = {"utils", "helpers", "manager", "base", "common", "misc"}
    assert [str(path.relative_to(ROOT)) for path in MODULES if path.stem in empty] == []


def test_no_machine_paths() -> None:
    """No file of the repository names a directory of somebody's machine or a private package index."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout.split("\0")
    machine = re.compile(rb"(?<![\w.~-])/(?:work|root|home|Users)/|(?:extra-)?index-" + rb"url")
    files = [ROOT / name for name in names if name and (ROOT / name).is_file()]
    assert [str(path.relative_to(ROOT)) for path in files if machine.search(path.read_bytes())] == []


def test_setup_is_posix_shell() -> None:
    """The set-up scripts are plain POSIX shell, and shellcheck, where it is installed, reports nothing."""
    scripts = [ROOT / "deploy" / name for name in ("local/setup.sh", "image_test.sh", "entrypoint.sh")]
    for script in scripts:
        assert script.read_text().startswith("#!/bin/sh\n")
        subprocess.run(["sh", "-n", script], check=True, timeout=30)
    if shellcheck := shutil.which("shellcheck"):
        subprocess.run([shellcheck, *scripts, ROOT / ".ci" / "run"], check=True, timeout=60)
