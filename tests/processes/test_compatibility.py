"""docs/compatibility.md: what tests meet is what it says, and the library runs on later versions of Python."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import release
from frontends.tools.servers.redis import redis_binary, valkey_binary

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "compatibility.md").read_text()
PYTHONS = ("python3.12", "python3.13", "python3.14")

MET: dict[str, list[str]] = {
    "Python": [sys.executable, "--version"],
    "Redis": [str(redis_binary()), "--version"],
    "Valkey": [str(valkey_binary()), "--version"],
    "ejabberd": ["dpkg-query", "--show", "--showformat", "${Version}", "ejabberd"],
    "Prosody": ["prosodyctl", "about"],
}
"""Commands that tell the version of what tests run on."""

PROGRAM = """
import asyncio
from stanzaq import Job, Worker
from stanzaq.testing import TestBroker

worker = Worker("xmpp://worker@example.org", service="queue.example.org", password="secret")

@worker.task("numbers")
async def double(job: Job[int]) -> int:
    return 2 * job.payload

async def main() -> None:
    async with TestBroker(worker) as broker:
        print(await double.on(broker).call(21))

asyncio.run(main())
"""


@pytest.mark.parametrize("name", MET)
def test_what_tests_meet(name: str) -> None:
    """The versions here are those in the table's last column, within what is supported."""
    (row,) = re.findall(rf"(?m)^\| {name}\b[^|]*\| ([^|]+) \| ([^|]+) \|$", PAGE)
    said = subprocess.run(MET[name], capture_output=True, text=True, check=True, timeout=30).stdout
    found = re.search(r"(?:^|[ =])(\d+\.\d+)", said)
    assert found, said
    assert found[1] in re.findall(r"\d+\.\d+", row[1]), (found[1], row)


@pytest.mark.soak
@pytest.mark.parametrize("python", PYTHONS)
def test_other_pythons(python: str, tmp_path: Path) -> None:
    """The wheels install there, with what they need, and a worker runs over the real core."""
    if not shutil.which(python) or subprocess.run([python, "--version"], check=False, timeout=30).returncode:
        pytest.skip(f"{python} is not installed")
    out, environment = tmp_path / "out", tmp_path / "environment"
    out.mkdir()
    release.build_packages(ROOT, out, 1_767_225_600)
    subprocess.run([python, "-m", "venv", environment], check=True, timeout=100)
    command = [str(environment / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    command += ["--find-links", str(out), f"stanzaq[testing]=={release.version()}"]
    subprocess.run(command, check=True, timeout=600)
    done = subprocess.run(
        [str(environment / "bin" / "python"), "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout == "42\n"
