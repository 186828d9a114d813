"""The program of docs/amqp.md does what it says."""

import re
import subprocess
import sys
from pathlib import Path

from frontends.amqp.errors import CONDITION
from tests.doors.amqp.conftest import NewLog
from tests.doors.amqp.served import AmqpFrontend

PAGE = (Path(__file__).parents[3] / "docs" / "amqp.md").read_text()


def test_program(frontend: AmqpFrontend, new_log: NewLog) -> None:
    """It ends well, and shows what it has sent with its offset."""
    program = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    program = program.replace("127.0.0.1:5672", f"127.0.0.1:{frontend.port}").replace('"log"', f'"{new_log()}"')
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "an event" in done.stdout and "event-streams-offset" in done.stdout


def test_conditions() -> None:
    """The page has what a producer or a consumer may meet; the table of the door has every problem."""
    told = {
        "amqp:not-found", "amqp:unauthorized-access", "amqp:resource-locked", "amqp:link:stolen", "amqp:invalid-field",
        "amqp:not-implemented", "amqp:decode-error", "amqp:link:message-size-exceeded", "amqp:resource-limit-exceeded",
    }  # fmt: skip
    assert told <= set(CONDITION.values()) and all(f"`{each}`" in PAGE for each in told)
