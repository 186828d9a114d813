"""The commands of docs/rest.md work as written."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

from frontends.tools.servers.process import free_port
from tests.doors.rest.served import NO_TLS
from tests.waiting import PATIENCE_SECONDS

PAGE = (Path(__file__).parents[3] / "docs" / "rest.md").read_text()


def test_commands(tmp_path: Path) -> None:
    """Every command succeeds, the server's and the clients'; each read shows what the others have sent."""
    serves, asks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    port, own = free_port(), {name: value for name, value in os.environ.items() if not name.startswith("STANZAQ_")}
    own |= {
        "PATH": f"{Path(sys.executable).parent}:{own['PATH']}",
        "STANZAQ_HTTP_BIND": f"127.0.0.1:{port}",
        "STANZAQ_METRICS_BIND": f"127.0.0.1:{free_port()}",
    }
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            ["sh", "-euc", serves], env=own, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True
        )
        try:
            _until_served(server, port, tmp_path / "log")
            script = "set -eu\n" + asks.replace("http://127.0.0.1:8080", f"http://127.0.0.1:{port}")
            done = subprocess.run(
                ["sh", "-c", script], capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
            )
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(PATIENCE_SECONDS)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert all(word in done.stdout for word in ("isbn-9780141439686", '"is_queue":true', "Persuasion"))
    assert '{"moved":1,"stayed":{}}' in done.stdout and re.search(r'{"purged":[1-9]}', done.stdout)


def _until_served(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        assert server.poll() is None and time.monotonic() < deadline, log.read_text()
        try:
            if httpx.get(f"http://127.0.0.1:{port}/openapi.json", verify=NO_TLS).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
