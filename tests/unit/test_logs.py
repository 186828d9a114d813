"""Logs: the project's and libraries' records have the same form."""

import json
import subprocess
import sys

import pytest

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


_LEAKS = """
import structlog
from frontends import logs

logs.set_up(as_json={as_json}, secrets=["mellon", "s", "m\\u00e4\\"rz"])
log = structlog.get_logger("stanzaq")


def read(payload):
    password = payload
    return int(payload)


try:
    try:
        read("PAYLOAD")
    except ValueError as error:
        raise ConnectionError("redis://u:mellon@h refuses mellon") from error
except ConnectionError:
    log.exception("failed", error="mellon", detail="m\\u00e4\\"rz")
"""

_FLOOD = """
import structlog
from frontends import logs

logs.set_up(as_json={as_json})
log = structlog.get_logger("stanzaq")
clock = [1.0]
logs.time.monotonic = lambda: clock[0]
for _ in range(1_000):
    log.info("refused", subscriber="mallory@x/a")
for number in range(1_000):
    log.info("refused", subscriber="mallory" + str(number))
log.info("refused")
log.info("something else")
clock[0] = 2.5
log.info("refused", subscriber="alice@x/a")
"""


def _lines(*, as_json: bool, program: str = _PROGRAM) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program.format(as_json=as_json)], capture_output=True, text=True, check=True, timeout=30
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


@pytest.mark.parametrize("as_json", [True, False])
def test_nothing_that_is_secret(as_json: bool) -> None:  # noqa: FBT001  (a parameter)
    """A traceback has no values of variables and no text that quotes unreadable data; no secret is ever written."""
    text = "\n".join(_lines(as_json=as_json, program=_LEAKS))
    assert (
        "ConnectionError" in text
        and "refuses ***" in text
        and "ValueError" in text
        and "in read" in text.replace('"name": "read"', "in read")
    )
    assert "PAYLOAD" not in text and "mellon" not in text and "rz" not in text


def test_a_flood() -> None:
    """One event has a bounded number of lines a second, fewer for one subscriber; the next line counts those left out."""
    lines = [json.loads(line) for line in _lines(as_json=True, program=_FLOOD)]
    assert sum(line.get("subscriber") == "mallory@x/a" for line in lines) == 5
    refused = [line for line in lines if line["event"] == "refused"]
    assert len(refused) == 20 + 1
    assert sum(line.get("suppressed", 0) for line in refused) == 2_001 - 20
    assert any(line["event"] == "something else" for line in lines)
