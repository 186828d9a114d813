"""The AMQP server: its socket, TLS, and graceful shutdown. Must not know what connections do."""

import asyncio
import ssl
from pathlib import Path
from typing import Final

from broker.model.core import Core
from broker.tasks import start
from frontends.amqp.auth.identity import Identity
from frontends.amqp.connection import AmqpConnection
from frontends.amqp.links.log_tail import LogTails
from frontends.amqp.server_state import ServerState
from frontends.listening import listen
from frontends.logins.connection_limits import ConnectionLimits

_HANDSHAKE_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.01


def tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> ssl.SSLContext | None:
    """Load the TLS context; None without a certificate. Raises OSError, which includes ssl.SSLError."""
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        # A peer without a certificate may still use a password.
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(client_ca)
    return context


class AmqpServer:
    """Serves connections until it is stopped."""

    def __init__(
        self,
        identity: Identity,
        host: str,
        port: int,
        *,
        context: ssl.SSLContext | None,
        connection_limits: ConnectionLimits,
    ) -> None:
        """Bind the address; raises OSError when it is not available."""
        self._socket = listen(host, port)
        self._identity = identity
        self._context = context
        self._connection_limits = connection_limits
        self._shared: ServerState | None = None
        self._server: asyncio.Server | None = None
        self._starting: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port it listens on, even if port 0 was configured."""
        return int(self._socket.getsockname()[1])

    @property
    def serving(self) -> bool:
        """Tell whether it accepts connections."""
        return self._server is not None and self._server.is_serving()

    def start(self, core: Core) -> None:
        """Start to accept connections."""
        shared = self._shared = ServerState(self._identity, self._connection_limits, core, LogTails(core))
        self._starting = start(self._listen(shared))

    async def _listen(self, shared: ServerState) -> None:
        """Accept connections with the present context, in place of a former one: open connections stay."""
        former = self._server
        self._server = await asyncio.get_running_loop().create_server(
            lambda: AmqpConnection(shared),
            # A server closes its socket when it ends.
            sock=self._socket.dup(),
            ssl=self._context,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS if self._context else None,
        )
        if former is not None:
            former.close()

    def review(self) -> None:
        """Close connections of peers that may not stay."""
        if self._shared is not None:
            for each in list(self._shared.connections):
                each.review()

    async def replace(self, context: ssl.SSLContext) -> None:
        """Use another TLS context for new connections."""
        self._context = context
        if self._shared is not None and self._starting is not None:
            await self._starting
            await self._listen(self._shared)

    async def drain(self, seconds: float) -> None:
        """Stop accepting, wait until pending messages are settled, then close all connections."""
        if self._starting is not None:
            await self._starting
        self._socket.close()
        if self._server is not None:
            self._server.close()
        if self._shared is None:
            return
        deadline = asyncio.get_running_loop().time() + seconds
        while not all(each.quiet for each in self._shared.connections):
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        for each in list(self._shared.connections):
            each.end()
