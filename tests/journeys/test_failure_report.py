"""A failed test reports what a person needs to find the cause."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.journeys.service import Service

ROOT: Final = Path(__file__).parents[2]

FAILING: Final = """
from pathlib import Path

import redis

from frontends.tools.servers.redis import RedisServer, redis_binary
from tests.journeys.client import Client

async def test_failing(tmp_path: Path) -> None:
    client = Client({port}, "queue.localhost", "anon.localhost")
    with RedisServer(binary=redis_binary()) as server, redis.Redis.from_url(server.url) as asked:
        await client.open()
        asked.config_set("loglevel", "debug")
        await client.close()
        assert False, "as it should"
"""


def test_what_a_failure_says(service: Service, tmp_path: Path) -> None:
    """The command to repeat the test, the servers' logs, and what its clients have sent and received."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_failing.py").write_text(FAILING.format(port=service.ejabberd.c2s_port))
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(tmp_path),
        "-c",
        str(ROOT / "pyproject.toml"),
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, "-n", "0", "-q", "--randomly-seed", "7"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    said = done.stdout
    assert done.returncode == 1, said + done.stderr
    assert "test_failing.py::test_failing' -n 0 -p randomly --randomly-seed=7" in said
    log = said.partition("- log of a server: ")[2].partition("\n---")[0]
    assert "redis.log" in log and "ready to accept connections" in log
    stanzas = said.partition("- the last stanzas -")[2]
    assert "SEND: <stream:stream to='anon.localhost'" in stanzas and "RECV: <success" in stanzas
