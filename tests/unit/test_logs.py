"""Logs: what the project writes and what libraries write come out the same way."""

import json
import subprocess
import sys

_PROGRAM = """
import logging
import structlog
from frontends import logs

logs.set_up(as_json={as_json})
structlog.get_logger("stanzaq").info("serving", domain="queue.example.org")
logging.getLogger("library").warning("said %s", "this")
logging.getLogger("slixmpp.xmlstream").info("not worth a line")
try:
    1 / 0
except ZeroDivisionError:
    structlog.get_logger("stanzaq").exception("failed")
"""


def _lines(*, as_json: bool) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(as_json=as_json)], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_json() -> None:
    """Each record is one JSON object on one line of stderr, also one with a traceback."""
    first, second, third = (json.loads(line) for line in _lines(as_json=True))
    assert (first["event"], first["domain"], first["level"]) == ("serving", "queue.example.org", "info")
    assert (second["event"], second["logger"]) == ("said this", "library")
    assert third["exception"][0]["exc_type"] == "ZeroDivisionError"


def test_console() -> None:
    """For people, a record is a line with its event and values, without colours when nobody is watching."""
    lines = _lines(as_json=False)
    assert "serving" in lines[0]
    assert "domain=queue.example.org" in lines[0]
    assert "\x1b" not in "".join(lines)
