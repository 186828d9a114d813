"""The worked example of CONTRIBUTING.md: an operation is added in few files, and works."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

from frontends.xmpp import namespaces as ns
from tests.contract.conftest import Store
from tests.waiting import PATIENCE_SECONDS

_ROOT = Path(__file__).resolve().parents[2]
_PATCH = _ROOT / "docs" / "examples" / "operation.patch"
_PROGRAM = _ROOT / "tests" / "contract" / "delayed.py"


def test_takes_four_files() -> None:
    """An operation is a command, a script, its call and its row; a door that offers it reads and writes it."""
    touched = re.findall(r"^\+\+\+ b/(\S+)$", _PATCH.read_text(), re.MULTILINE)
    assert len([path for path in touched if path.startswith(("broker/", "lua/"))]) <= 4
    assert len([path for path in touched if path.startswith("frontends/xmpp/")]) <= 2
    assert all(path.startswith(("broker/", "lua/", "frontends/xmpp/")) for path in touched)
    assert str(_PATCH.relative_to(_ROOT)) in (_ROOT / "CONTRIBUTING.md").read_text()


def test_works(store: Store, node: str, tmp_path: Path) -> None:
    """With the patch applied, an owner drops delayed items in all partitions, once, by a stanza; a stranger is refused."""
    for folder in ("broker", "frontends", "lua"):
        shutil.copytree(_ROOT / folder, tmp_path / folder)
    shutil.copy(_ROOT / "pyproject.toml", tmp_path)
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
