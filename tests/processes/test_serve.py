"""A frontend as a process: it starts, reports its state, and stops when told to."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.process import free_port
from tests.certificates import Authority
from tests.forks import Forks
from tests.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def _frontend(ejabberd: Ejabberd, port: int, **settings: str) -> Iterator[subprocess.Popen[str]]:
    """Run `stanzaq serve xmpp` with these settings."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("STANZAQ_")}
    named = {
        "XMPP_SERVER": f"{ejabberd.host}:{ejabberd.component_port}",
        "XMPP_DOMAIN": "serve.localhost",
        **({} if "XMPP_SECRET_FILE" in settings else {"XMPP_SECRET": ejabberd.secret}),
        "METRICS_BIND": f"127.0.0.1:{port}",
        "LOG_FORMAT": "json",
        **settings,
    }
    environment = own | {f"STANZAQ_{name}": value for name, value in named.items()}
    command = [sys.executable, "-m", "frontends.cli", "serve", "xmpp"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as frontend:
        try:
            yield frontend
        finally:
            frontend.kill()


def _get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except urllib.error.URLError:
        return 0, "nobody listens"


def _health(port: int) -> tuple[int, str]:
    """Run `stanzaq health`."""
    named = {"XMPP_DOMAIN": "serve.localhost", "XMPP_SECRET": "any", "METRICS_BIND": f"127.0.0.1:{port}"}
    environment = os.environ | {f"STANZAQ_{name}": value for name, value in named.items()}
    command = [sys.executable, "-m", "frontends.cli", "health"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    return done.returncode, done.stdout


def _eventually(port: int, path: str, status: int) -> str:
    """Request until the answer has this status, and return its text."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found, text = _get(port, path)
        if found == status:
            return text
        assert time.monotonic() < deadline, (found, text)
        time.sleep(0.05)


def _as_documented(metrics: str) -> None:
    """Issue 26: docs/operations.md has every metric with type and meaning, and no other; promtool is content."""
    meanings = {name: text.removesuffix(".") for name, text in re.findall(r"(?m)^# HELP (\S+) (.*)$", metrics)}
    found = [(name, kind, meanings[name]) for name, kind in re.findall(r"(?m)^# TYPE (\S+) (\S+)$", metrics)]
    page = (
        (ROOT / "docs" / "operations.md").read_text().partition("| metric | type | meaning |")[2].partition("\n\n")[0]
    )
    listed = re.findall(r"(?m)^\| `(\S+)` \| (\w+) \| (.*) \|$", page)
    assert sorted(found) == sorted(listed) and len({name for name, _, _ in found}) == len(found)
    command = ["promtool", "check", "metrics"]
    done = subprocess.run(command, input=metrics, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_comes_and_goes(ejabberd: Ejabberd, forks: Forks) -> None:
    """With a Redis of its own a frontend is soon ready; SIGTERM ends it in order, with nothing but JSON in its log."""
    port = free_port()
    with forks.suspended(), _frontend(ejabberd, port, REDIS_URL="embedded://") as frontend:
        assert _eventually(port, "/readyz", 200) == "ok\n"
        metrics = _eventually(port, "/metrics", 200)
        assert "\nstanzaq_ready 1.0\n" in metrics
        _as_documented(metrics)
        assert _health(port) == (0, "ok\n")
        frontend.send_signal(signal.SIGTERM)
        _, log = frontend.communicate(timeout=PATIENCE_SECONDS)
        assert frontend.returncode == 0
        events = [json.loads(line)["event"] for line in log.splitlines()]
        assert events.index("connected to the XMPP server") < events.index("serving")
        assert "draining" in events


class _Tls(Ejabberd):
    """An ejabberd that also accepts components with TLS from the first byte."""

    def __init__(self, certificate: Path) -> None:
        super().__init__()
        self.tls_port = free_port()
        self._certificate = certificate

    def _configuration(self) -> str:
        listener = {"port": self.tls_port, "ip": self.host, "module": "ejabberd_service", "password": self.secret}
        configuration = yaml.safe_load(super()._configuration())
        configuration["listen"].append(listener | {"tls": True, "certfile": str(self._certificate)})
        return yaml.safe_dump(configuration)


def test_tls(tmp_path: Path) -> None:
    """The stream to ejabberd is encrypted, and only a server that the authorities vouch for gets the handshake.

    Renewed authorities and a renewed secret are used for the next attempt, at the latest after SIGHUP, which ends nothing.
    """
    authority = Authority(tmp_path / "authority")
    certificate = tmp_path / "server.pem"
    certificate.write_text("".join(path.read_text() for path in authority.sign("server")))
    port = free_port()
    with _Tls(certificate) as ejabberd:
        settings = {
            "REDIS_URL": "embedded://",
            "XMPP_SERVER": f"{ejabberd.host}:{ejabberd.tls_port}",
            "XMPP_TLS": "true",
        }
        with _frontend(ejabberd, port, **settings, XMPP_CA=str(authority.certificate)):
            assert _eventually(port, "/readyz", 200) == "ok\n"
        authorities, secret = tmp_path / "authorities", tmp_path / "secret"
        authorities.write_text(Authority(tmp_path / "other").certificate.read_text())
        secret.write_text("wrong")
        files = {"XMPP_CA": str(authorities), "XMPP_SECRET_FILE": str(secret)}
        with _frontend(ejabberd, port, **settings, **files) as frontend:
            assert "certificate verify failed" in _event(frontend, "cannot reach the XMPP server")
            authorities.write_text(authority.certificate.read_text())
            frontend.send_signal(signal.SIGHUP)
            assert "not-authorized" in _event(frontend, "the XMPP server closed the stream")
            secret.write_text(ejabberd.secret)
            frontend.send_signal(signal.SIGHUP)
            assert _eventually(port, "/readyz", 200) == "ok\n"


def _event(frontend: subprocess.Popen[str], event: str) -> str:
    """Read the log up to an event, and return the event."""
    assert frontend.stderr is not None
    entry: dict[str, str] = {}
    while entry.get("event") != event:
        entry = json.loads(frontend.stderr.readline())
    return str(entry)


def test_serving_is_told_when_it_is_so(ejabberd: Ejabberd) -> None:
    """While the XMPP server is away the log does not say `serving`; the frontend still ends when it is told to."""
    port = free_port()
    away = f"127.0.0.1:{free_port()}"
    with _frontend(ejabberd, port, REDIS_URL="embedded://", XMPP_SERVER=away) as frontend:
        assert frontend.stderr is not None
        events = [json.loads(frontend.stderr.readline())["event"]]
        while events[-1] != "cannot reach the XMPP server":
            events.append(json.loads(frontend.stderr.readline())["event"])
        frontend.send_signal(signal.SIGTERM)
        _, log = frontend.communicate(timeout=PATIENCE_SECONDS)
        assert frontend.returncode == 0 and "serving" not in events
        assert "serving" not in [json.loads(line)["event"] for line in log.splitlines()]


def test_without_redis(ejabberd: Ejabberd) -> None:
    """A frontend whose Redis is away lives, says that it is not ready and why, and still ends when it is told to."""
    port = free_port()
    with _frontend(ejabberd, port, REDIS_URL=f"redis://127.0.0.1:{free_port()}") as frontend:
        assert _eventually(port, "/livez", 200) == "ok\n"
        assert "there is no stream to the XMPP server" in _eventually(port, "/readyz", 503)
        assert "\nstanzaq_ready 0.0\n" in _eventually(port, "/metrics", 200)
        code, said = _health(port)
        assert code == 1 and "there is no stream to the XMPP server" in said
        frontend.send_signal(signal.SIGTERM)
        assert frontend.wait(PATIENCE_SECONDS) == 0
