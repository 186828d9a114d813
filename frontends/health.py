"""/livez, /readyz and /metrics over HTTP, from a thread of its own, so that a hung event loop is reported.

Knows when the loop last ran and a function to ask; must not know what makes a frontend ready.
"""

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from frontends.listening import listen, to_reach

_TEXT: Final = "text/plain; charset=utf-8"
_REQUEST_SECONDS: Final = 5.0
_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Uses no proxy of the environment: what is asked runs on this machine."""

Reasons = Callable[[], Sequence[str]]
"""Returns why the frontend is not ready, empty if it is; called from the health thread."""


class Health:
    """Answers an orchestrator's probes."""

    def __init__(
        self,
        reasons: Reasons,
        registry: CollectorRegistry,
        stale_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Count the loop as hung when it has not called `turn` for `stale_seconds`."""
        self._reasons = reasons
        self._registry = registry
        self._stale_seconds = stale_seconds
        self._clock = clock
        self._turned = clock()

    def turn(self) -> None:
        """Record that the loop runs."""
        self._turned = self._clock()

    def answer(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        """Return status, content type and body for a path."""
        match path.partition("?")[0]:
            case "/livez":
                return _verdict(self._hung())
            case "/readyz":
                return _verdict([*self._hung(), *self._reasons()])
            case "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self._registry)
            case _:
                return HTTPStatus.NOT_FOUND, _TEXT, b"there are /livez, /readyz and /metrics\n"

    def _hung(self) -> list[str]:
        age = self._clock() - self._turned
        return [f"the event loop has not turned for {age:.1f} s"] if age > self._stale_seconds else []


def _verdict(reasons: Sequence[str]) -> tuple[HTTPStatus, str, bytes]:
    status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
    return status, _TEXT, "".join(f"{line}\n" for line in reasons or ["ok"]).encode()


def ask(host: str, port: int) -> tuple[bool, str]:
    """Ask a frontend whether it is ready; returns its answer, or why there is none."""
    try:
        with _DIRECT.open(f"http://{_reachable(host)}:{port}/readyz", timeout=_REQUEST_SECONDS) as answer:
            return True, answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        with error:
            return False, error.read().decode().strip()
    except OSError as fault:
        return False, f"no answer from {host}:{port}: {fault}"


def _reachable(host: str) -> str:
    host = to_reach(host)
    return f"[{host}]" if ":" in host else host


class HealthServer:
    """Serves a `Health` until it is stopped."""

    def __init__(self, health: Health, host: str, port: int) -> None:
        """Listen and begin to answer; raises OSError when the address is not available."""

        class Handler(BaseHTTPRequestHandler):
            # The longest time that a silent client may hold a thread.
            timeout = _REQUEST_SECONDS

            def do_GET(self) -> None:
                status, kind, body = health.answer(self.path)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing: a probe comes every second."""

        self._server = ThreadingHTTPServer((host, port), Handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listen(host, port)
        self._thread = Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on, even if port 0 was configured."""
        return int(self._server.socket.getsockname()[1])

    def stop(self) -> None:
        """Stop and release the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
