"""A RESTful frontend as a child process, and clients of it. Knows how they start; must not know what a test asks."""

import base64
import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bcrypt
import httpx

from frontends.servers.process import Process, Server, free_port

ALICE, BOB = "alice@example.org", "bob@example.org"
PASSWORD = "secret"
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""One for all clients: httpx would make one for each, at the cost of a fifth of a second."""

HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()


class RestFrontend(Server):
    """One `stanzaq serve rest`; `settings` are `STANZAQ_*` without their prefix."""

    _ready_seconds = 30.0

    def __init__(self, redis_url: str, **settings: str) -> None:
        """Choose the Redis, and ports."""
        super().__init__(None, "frontend")
        self.port, self._health = free_port(), free_port()
        self._settings = {
            "REDIS_URL": redis_url,
            "HTTP_BIND": f"127.0.0.1:{self.port}",
            "HTTP_PASSWORDS": f"{ALICE}:{HASH}\n{BOB}:{HASH}\n",
            "METRICS_BIND": f"127.0.0.1:{self._health}",
            "LOG_FORMAT": "json",
            **settings,
        }

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return (self.directory / "frontend.log").read_text()

    def probe(self, path: str) -> tuple[int, str]:
        """Ask a probe; 0 when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, "nobody listens"

    def _launch(self) -> Process:
        own = {name: value for name, value in os.environ.items() if not name.startswith("STANZAQ_")}
        return Process(
            [sys.executable, "-m", "frontends.cli", "serve", "rest"],
            directory=Path.cwd(),
            log=self.directory / "frontend.log",
            environment=own | {f"STANZAQ_{name}": value for name, value in self._settings.items()},
        )

    def _ready(self) -> bool:
        return self.probe("/readyz")[0] == 200


def basic_words(jid: str = ALICE) -> str:
    """Give somebody's credentials."""
    return f"Basic {base64.b64encode(f'{jid}:{PASSWORD}'.encode()).decode()}"


@contextmanager
def client(frontend: RestFrontend, jid: str = ALICE, **headers: str) -> Iterator[httpx.Client]:
    """Give a client of one user."""
    with httpx.Client(
        base_url=frontend.url, headers={"Authorization": basic_words(jid), **headers}, verify=NO_TLS
    ) as opened:
        yield opened


def problem(answer: httpx.Response) -> tuple[int, str]:
    """Give status and code of a refusal, and check that it is written as one."""
    assert answer.headers["Content-Type"] == "application/problem+json"
    said = answer.json()
    assert (
        set(said) == {"type", "title", "status", "detail"} and said["status"] == answer.status_code and said["detail"]
    )
    return answer.status_code, said["type"].removeprefix("urn:stanzaq:0:problem:")
