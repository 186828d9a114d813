"""The HTTP server: its socket, uvicorn, and graceful shutdown. Must not know what is served."""

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from starlette.types import ASGIApp
from uvicorn import Server as Uvicorn

from broker.tasks import start
from frontends.listening import listen
from frontends.logins.connection_limits import ConnectionLimits
from frontends.rest.http.connection import HttpConnection, Limited

if TYPE_CHECKING:
    from asyncio import Task


class _Server(Uvicorn):
    """uvicorn without signal handlers, which `compose` sets."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield


class HttpServer:
    """Serves an application until it is stopped."""

    def __init__(  # noqa: PLR0913  (settings, each named where it is given)
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        slow_seconds: float,
        header_bytes: int,
        connection_limits: ConnectionLimits,
        keep_alive_seconds: float,
        drain_seconds: float,
    ) -> None:
        """Bind the address; raises OSError when it is not available."""
        self._socket = listen(host, port)
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        config = Limited(
            slow_seconds,
            header_bytes,
            connection_limits,
            app=app,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            # uvicorn passes it on to a timer, which takes fractions.
            timeout_keep_alive=keep_alive_seconds,
            timeout_graceful_shutdown=max(1, round(drain_seconds)),
        )
        self._server = _Server(config)
        self._task: Task[None] | None = None

    @property
    def port(self) -> int:
        """The port it listens on, even if port 0 was configured."""
        return int(self._socket.getsockname()[1])

    @property
    def serving(self) -> bool:
        """Tell whether it accepts connections."""
        return self._server.started and not self._server.should_exit

    def start(self) -> None:
        """Start to accept connections."""
        self._task = start(self._server.serve(sockets=[self._socket]))

    async def drain(self) -> None:
        """Stop accepting, and answer the open requests."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
