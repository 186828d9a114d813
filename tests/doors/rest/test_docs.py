"""The commands of docs/rest.md do what they say."""

import re
import subprocess
from pathlib import Path

from frontends.servers.redis import RedisServer
from tests.doors.frontend import HASH
from tests.doors.rest.served import RestFrontend

PAGE = (Path(__file__).parents[3] / "docs" / "rest.md").read_text()


def test_commands(redis: RedisServer) -> None:
    """Every command ends well, and the last look shows what the others have sent."""
    commands = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)[1]
    with RestFrontend(redis.url, HTTP_PASSWORDS=f"alice@example.org:{HASH}") as frontend:
        script = "set -eu\n" + commands.replace("http://127.0.0.1:8080", frontend.url)
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert all(word in done.stdout for word in ("isbn-9780141439686", "Sanditon", '"is_queue":true', "Persuasion"))
