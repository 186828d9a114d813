"""The commands and programs of docs/amqp.md work as written."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from frontends.amqp import errors
from frontends.errors import ERRORS
from frontends.tools.servers.process import free_port
from frontends.tools.servers.redis import RedisServer
from tests.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "amqp.md").read_text()


def blocks(language: str) -> list[str]:
    """Return the page's blocks of a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@contextmanager
def served(commands: str, redis: RedisServer, directory: Path) -> Iterator[int]:
    """Run the commands of a server, and return its port."""
    port, own = free_port(), {name: value for name, value in os.environ.items() if not name.startswith("STANZAQ_")}
    own |= {"PATH": f"{Path(sys.executable).parent}:{own['PATH']}", "STANZAQ_AMQP_BIND": f"127.0.0.1:{port}"}
    # Alice owns the nodes of other tests on the same Redis.
    own |= {"STANZAQ_NODE_QUOTA": "100000"}
    script = "set -eu\n" + commands.replace("redis://127.0.0.1:6379/0", redis.url)
    with (directory / "log").open("wb") as log:
        server = subprocess.Popen(
            ["sh", "-c", script], env=own, cwd=directory, stdout=log, stderr=log, start_new_session=True
        )
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not listens(port):
                assert server.poll() is None and time.monotonic() < deadline, (directory / "log").read_text()
                time.sleep(0.1)
            yield port
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            server.wait(PATIENCE_SECONDS)


def listens(port: int) -> bool:
    """Return whether anybody listens."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def said(port: int, directory: Path, *command: str, program: str) -> str:
    """Run a program; return its output."""
    program = program.replace("127.0.0.1:5672", f"127.0.0.1:{port}")
    done = subprocess.run(
        [*command, program], cwd=directory, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def test_programs(redis: RedisServer, tmp_path: Path) -> None:
    """Each succeeds: a log and a queue by proton, and the same log as a hub by both SDKs."""
    (plain, hubs), (log, queue, sends), (receives,) = blocks("sh"), blocks("python"), blocks("js")
    with served(plain, redis, tmp_path) as port:
        found = said(port, tmp_path, sys.executable, "-c", program=log + queue)
        assert "an event " in found and "event-streams-offset" in found
        assert "a job 0 " in found and "x-opt-stanzaq-lock" in found
    # npm's packages are found from the folder of a program.
    (tmp_path / "node_modules").symlink_to(ROOT / ".venv" / "tools" / "node_modules")
    with served(hubs, redis, tmp_path) as port:
        assert "'partition_ids': ['0']" in said(port, tmp_path, sys.executable, "-c", program=sends)
        lines = said(port, tmp_path, "node", "--input-type=module", "--eval", program=receives).splitlines()
    assert [line.rpartition(" ")[0] for line in lines] == ["an event", "from Python"]


def test_conditions() -> None:
    """The page has every condition that a producer or a consumer may get; the door's table has every problem."""
    told = {
        "amqp:not-found", "amqp:unauthorized-access", "amqp:resource-locked", "amqp:link:stolen", "amqp:invalid-field",
        "amqp:not-implemented", "amqp:decode-error", "amqp:link:message-size-exceeded", "amqp:resource-limit-exceeded",
    }  # fmt: skip
    assert told <= {each.amqp for each in ERRORS.values()} and all(f"`{each}`" in PAGE for each in told)
    # And the errors of AMQP itself.
    own = {errors.FRAMING, errors.ILLEGAL_STATE, errors.HANDLE_IN_USE, errors.UNATTACHED_HANDLE, errors.TRANSFER_LIMIT}
    assert all(f"`{each}`" in PAGE for each in own)
