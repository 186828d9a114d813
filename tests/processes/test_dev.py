"""`stanzaq dev` ends at Ctrl-C, at whichever of its lines the signal comes, and says what is missing."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from frontends.tools import dev
from tests.waiting import PATIENCE_SECONDS

# No server has a part in it: each round waits for a signal, which comes one line later than in the round before.
_PROGRAM: Final = """
import signal, sys
from frontends.tools import dev

dev._LOOKED_SECONDS = 0.001
lines = 0

class Frontend:
    def must_live(self):
        sys.settrace(trace)

def trace(_frame, event, _argument):
    global lines
    lines -= event == "line"
    if lines == 0:
        signal.raise_signal(signal.SIGINT)
    return trace

dev.start = lambda *_: dev.Service((Frontend(),), "", "", "", "", "")
for number in range(1, 100):
    lines = number
    dev.main(None)
    sys.settrace(None)
print("ended", number)
"""


def test_interrupted() -> None:
    """No line holds what the signal needs."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.stdout.endswith("ended 99\n"), done.stderr


def test_without_amqp() -> None:
    """Without proton the printed text says how to install AMQP."""
    service = dev.Service((), "http://127.0.0.1:8080", "", "", Path("/run/redis.sock"), "There is no XMPP")
    (line,) = (line for line in dev._lines(service) if line.startswith("AMQP"))
    assert "is missing: pip install 'stanzaq[amqp]', or `make install` in a clone" in line
