"""An HTTP frontend as a process: start, probes, the loss of Redis, and an orderly stop."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import bcrypt
import pytest

from frontends.tools.servers.process import ServerError, free_port
from frontends.tools.servers.redis import RedisServer, valkey_binary
from tests.doors.frontend import ALICE, BOB, HASH
from tests.doors.rest.raw import Line
from tests.doors.rest.served import RestFrontend, basic_words, client, problem
from tests.forks import Forks
from tests.waiting import PATIENCE_SECONDS


def checked(**settings: str) -> tuple[int, str]:
    """Run `stanzaq serve rest --check` with these settings alone."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("STANZAQ_")}
    done = subprocess.run(
        [sys.executable, "-m", "frontends.cli", "serve", "rest", "--check"],
        env=own | {"COLUMNS": "300"} | {f"STANZAQ_{name}": value for name, value in settings.items()},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    return done.returncode, done.stdout + done.stderr


def test_settings_of_its_own(tmp_path: Path) -> None:
    """It needs no settings of XMPP, but a way to authenticate."""
    passwords = tmp_path / "passwords"
    passwords.write_text(f"{ALICE}:{HASH}\n\n")
    assert checked(HTTP_PASSWORDS_FILE=str(passwords))[0] == 0
    assert checked(HTTP_ANONYMOUS="anyone@example.org")[0] == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "Nobody may ask anything"),
        ({"HTTP_PASSWORDS": "alice@example.org:secret"}, "line 1 is not JID:HASH"),
        ({"HTTP_PASSWORDS": f"alice:{HASH}"}, "line 1 is not JID:HASH"),
        ({"HTTP_PASSWORDS": f"alice@@example.org:{HASH}"}, "line 1 is not JID:HASH"),
        ({"JWT_KEYS": "https://login.example.org/keys"}, "STANZAQ_JWT_ISSUER"),
        ({"JWT_KEYS": "http://login.example.org/keys"}, "keys are fetched over https alone"),
        ({"JWT_KEYS": "secret"}, "neither a JWKS nor a public key in PEM"),
        ({"HTTP_ANONYMOUS": "anyone"}, "is not a bare JID"),
        ({"HTTP_BIND": "8080", "HTTP_ANONYMOUS": "a@b"}, "is not HOST:PORT"),
    ],
)
def test_bad_settings(settings: dict[str, str], said: str) -> None:
    """An unusable setting is named, and no secret is shown."""
    code, text = checked(**settings)
    assert code == 2 and said in text and HASH not in text and "org:secret" not in text


def _takes(frontend: RestFrontend) -> bool:
    """Return whether it accepts another connection."""
    try:
        socket.create_connection(("127.0.0.1", frontend.port), timeout=20).close()
    except OSError:
        return False
    return True


def test_goes_in_order(redis: RedisServer, forks: Forks) -> None:
    """SIGTERM lets a request under way be answered, accepts no other, and leaves only JSON in the log."""
    with forks.suspended(), RestFrontend(redis.url) as frontend:
        line = Line(frontend)
        head = f"POST /queues HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nAuthorization: {basic_words()}\r\n"
        line.say(f"{head}Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n".encode())
        assert line.first() == 100
        os.kill(frontend.process.pid, signal.SIGTERM)
        deadline = time.monotonic() + 20
        while _takes(frontend):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        line.say(b"{}")
        assert line.hear()[0] == 201
        assert frontend.process._child.wait(PATIENCE_SECONDS) == 0
        events = [json.loads(each)["event"] for each in frontend.log.splitlines()]
        assert "serving" in events and "draining" in events


def test_loses_redis() -> None:
    """Without Redis it lives, is not ready, and says so to each client; when Redis is back it continues."""
    with (
        RedisServer(binary=valkey_binary()) as redis,
        RestFrontend(redis.url, REDIS_TIMEOUT="0.5") as frontend,
        client(frontend) as alice,
    ):
        assert alice.put("/queues/q").status_code == 201
        redis.process.pause()
        refused = alice.post("/queues/q", content=b"x")
        assert problem(refused)[0] in {503, 504} and refused.headers["Retry-After"] == "1"
        _until(frontend, 503)
        assert frontend.probe("/livez")[0] == 200
        redis.process.resume()
        _until(frontend, 200)
        assert alice.post("/queues/q", content=b"x").status_code == 201


def test_address_in_use(redis: RedisServer) -> None:
    """An address in use is named."""
    with RestFrontend(redis.url) as first:
        second = RestFrontend(redis.url, HTTP_BIND=f"127.0.0.1:{first.port}")
        with pytest.raises(ServerError, match="HTTP cannot be served"), second:
            pass


def test_without_redis() -> None:
    """It waits for a missing Redis, says so to each client at once, as when it loses one, and still ends when told to."""
    with RestFrontend(f"redis://127.0.0.1:{free_port()}").waiting() as frontend, client(frontend) as alice:
        assert frontend.probe("/livez")[0] == 200
        refused = alice.post("/queues", timeout=5)
        assert problem(refused) == (503, "unavailable") and refused.headers["Retry-After"] == "1"
        assert alice.post("/queues", auth=(ALICE, "wrong"), timeout=5).status_code == 401
        assert "stanzaq_ready 0.0" in frontend.probe("/metrics")[1]
        os.kill(frontend.process.pid, signal.SIGTERM)
        assert frontend.process._child.wait(PATIENCE_SECONDS) == 0


def test_redis_comes_later() -> None:
    """A frontend that starts before Redis serves when it comes."""
    redis = RedisServer(binary=valkey_binary())
    with RestFrontend(redis.url).waiting() as frontend, client(frontend) as alice:
        assert alice.put("/queues/q", timeout=5).status_code == 503
        with redis:
            _until(frontend, 200)
            assert alice.put("/queues/q").status_code == 201


def test_many_frontends(redis: RedisServer) -> None:
    """No state is in a frontend: one completes what another has begun."""
    with RestFrontend(redis.url) as one, RestFrontend(redis.url) as other, client(one) as here, client(other) as there:
        queue = here.post("/queues").headers["Location"]
        where = there.post(queue).headers["Location"]
        assert here.post(where, content=b"x").status_code == 200
        assert there.post(where, content=b"x").json()["duplicate"] is True
        assert there.post(where, content=b"y").status_code == 409
        # A message sent in two steps counts once.
        assert "\nstanzaq_published_total 1.0\n" in one.probe("/metrics")[1]
        assert "\nstanzaq_published_total 0.0\n" in other.probe("/metrics")[1]


def test_passwords_that_change(redis: RedisServer, tmp_path: Path) -> None:
    """A removed user and a former password are refused, on open connections too; SIGHUP asks to look now and ends nothing.

    Without it, a file is read soon after a link above it was exchanged, as Kubernetes does. What is wrong changes nothing.
    """
    other = bcrypt.hashpw(b"other", bcrypt.gensalt(4)).decode()
    mounted, passwords = tmp_path / "..data", tmp_path / "passwords"
    for name, lines in (("old", f"{ALICE}:{HASH}\n{BOB}:{HASH}\n"), ("new", f"{BOB}:{other}\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "passwords").write_text(lines)
    mounted.symlink_to("old")
    passwords.symlink_to("..data/passwords")
    with (
        RestFrontend(redis.url).with_passwords(passwords) as frontend,
        client(frontend) as alice,
        client(frontend, BOB) as bob,
    ):
        queue = bob.post("/queues").headers["Location"].rpartition("/")[2]
        where = bob.post("/subscriptions", json={"destinations": queue}).headers["Location"]
        with bob.stream("GET", where, headers={"Accept": "text/event-stream"}) as stream:
            passwords.write_text(f"{ALICE}:{HASH}\n{BOB}:{other}\n")
            frontend.look()
            assert bob.get("/queues").status_code == 401 and alice.get("/queues").status_code == 200
            assert bob.get("/queues", auth=(BOB, "other")).status_code == 200
            passwords.write_text("secret\n")
            frontend.look()
            (refused,) = [each for each in map(json.loads, frontend.log.splitlines()) if each["level"] == "error"]
            assert "STANZAQ_HTTP_PASSWORDS" in refused["reason"] and "line 1 is not JID:HASH" in refused["reason"]
            assert alice.get("/queues").status_code == 200
            replacement = tmp_path / "..tmp"
            replacement.symlink_to("new")
            replacement.rename(mounted)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while alice.get("/queues").status_code != 401:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert bob.get("/queues", auth=(BOB, "other")).status_code == 200
            assert "invalid-credentials" in stream.read().decode()


def _until(frontend: RestFrontend, status: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while frontend.probe("/readyz")[0] != status:
        assert time.monotonic() < deadline, frontend.probe("/readyz")
        time.sleep(0.05)
