"""The worked examples of CONTRIBUTING.md: an operation is added in few files and works, and two real changes took few."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree as ET

import pytest

from frontends.xmpp import namespaces as ns
from tests.contract.conftest import Store
from tests.waiting import PATIENCE_SECONDS

_ROOT = Path(__file__).resolve().parents[2]
_EXAMPLES = _ROOT / "docs" / "examples"
_PATCH = _EXAMPLES / "operation.patch"
_PROGRAM = _ROOT / "tests" / "contract" / "delayed.py"


def _touched(name: str) -> list[str]:
    """Return the files that a patch changes, adds or removes."""
    return re.findall(r"^diff --git a/(\S+) ", (_EXAMPLES / f"{name}.patch").read_text(), re.MULTILINE)


def _copy(path: Path) -> None:
    """Copy the product to a folder."""
    for folder in ("broker", "frontends", "lua", "stanzaq"):
        shutil.copytree(_ROOT / folder, path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(_ROOT / "pyproject.toml", path)


def _files(path: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in path.rglob("*") if each.is_file() and "__pycache__" not in each.parts}


def test_takes_four_files() -> None:
    """An operation is a command, a script, its call and its row; a door that offers it reads and writes it."""
    touched = _touched("operation")
    assert len([path for path in touched if path.startswith(("broker/", "lua/"))]) <= 4
    assert len([path for path in touched if path.startswith("frontends/xmpp/")]) <= 2
    assert all(path.startswith(("broker/", "lua/", "frontends/xmpp/")) for path in touched)
    assert str(_PATCH.relative_to(_ROOT)) in (_ROOT / "CONTRIBUTING.md").read_text()


def test_works(store: Store, node: str, tmp_path: Path) -> None:
    """With the patch applied, an owner drops delayed items in all partitions, once, by a stanza; a stranger is refused."""
    _copy(tmp_path)
    subprocess.run(["git", "apply", "-C1", "--recount", _PATCH], cwd=tmp_path, check=True, timeout=PATIENCE_SECONDS)
    done = subprocess.run(
        [sys.executable, _PROGRAM, store.url, node],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    refused, dropped, again = map(ET.fromstring, done.stdout.splitlines())
    assert refused.get("type") == "error"
    found = [each.find(f"{{{ns.STANZAQ}}}purge-delayed") for each in (dropped, again)]
    assert [each is not None and each.get("count") for each in found] == ["2", "0"]


@pytest.mark.parametrize(
    ("name", "product", "files"),
    [
        # An option: its row, and in Lua the rule and who asks it.
        ("rate", ("broker/", "lua/"), 5),
        # An operation: command, result, call, row, who may, and in Lua the operation and how locks end by it.
        ("cancel", ("broker/", "lua/"), 7),
        ("cancel", ("frontends/xmpp/",), 1),
        ("cancel", ("frontends/rest/",), 5),
        ("cancel", ("frontends/commands/",), 1),
        ("cancel", ("stanzaq/",), 7),
    ],
)
def test_files_of_a_real_change(name: str, product: tuple[str, ...], files: int) -> None:
    """`stanzaq#rate` and `cancel` touch so many files of the product: those of the core, and those of each door."""
    touched = _touched(name)
    assert len([path for path in touched if path.startswith(product)]) == files


@pytest.mark.parametrize(
    ("name", "is_there"),
    [
        ("rate", "from broker.model.nodes.options import BY_NAME; print('stanzaq#rate' in BY_NAME)"),
        (
            "cancel",
            """
            import frontends.cli, frontends.xmpp.component, stanzaq
            from broker.scripts.location import lua_directory
            from broker.scripts.source import operations
            from frontends.rest.operations import OPERATIONS
            has = ['cancel' in OPERATIONS, hasattr(stanzaq.Publisher, 'cancel'), 'cancel' in operations(lua_directory())]
            assert len(set(has)) == 1
            print(has[0])
            """,
        ),
    ],
)
def test_a_real_change(name: str, is_there: str, tmp_path: Path) -> None:
    """The patch of a real change can be taken back, which leaves a whole program without it, and applied again."""
    _copy(tmp_path)
    before = _files(tmp_path)
    for back, told in (["-R"], "False"), ([], "True"):
        apply = ["git", "apply", *back, "--recount", str(_EXAMPLES / f"{name}.patch")]
        subprocess.run(apply, cwd=tmp_path, check=True, timeout=PATIENCE_SECONDS)
        found = subprocess.run(
            [sys.executable, "-c", dedent(is_there)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_SECONDS,
        )
        assert found.stdout.strip() == told
    assert _files(tmp_path) == before
