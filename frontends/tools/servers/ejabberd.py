"""A private ejabberd. Knows how to start it without its control script; must not know what its clients send.

The control script refuses all users but root and its own, and starts epmd on all interfaces: `erl` does neither.
"""

import os
import secrets
import shutil
from pathlib import Path
from string import Template
from typing import Final

from frontends.tools.servers import conversation
from frontends.tools.servers.process import Process, Server, ServerError, free_port

_PROBE: Final = "probe.localhost"
_LIBRARIES: Final = ("usr/lib/*/ejabberd-*/ebin", "usr/lib/ejabberd-*/ebin", "usr/lib/erlang/lib/ejabberd-*/ebin")


def _template() -> str:
    """Read the configuration, from an installed wheel or from the repository."""
    frontends = Path(__file__).resolve().parents[2]
    bundled = frontends / "_local" / "ejabberd.yml"
    if not bundled.is_file() and (frontends.parent / "pyproject.toml").is_file():
        bundled = frontends.parent / "deploy" / "local" / "ejabberd.yml"
    return bundled.read_text()


def _libraries() -> Path:
    """Find where the distribution keeps ejabberd and its Erlang libraries."""
    for pattern in _LIBRARIES:
        for ebin in sorted(Path("/").glob(pattern)):
            return ebin.parent.parent
    msg = "ejabberd is missing: apt-get install ejabberd"
    raise ServerError(msg)


def _erl() -> str:
    found = shutil.which("erl")
    if found is None:
        msg = "erl is missing: apt-get install ejabberd"
        raise ServerError(msg)
    return found


class Ejabberd(Server):
    """One ejabberd: accounts on `localhost`, anonymous clients on `anon.localhost`, any number of components."""

    _ready_seconds = 60.0

    host: Final = "127.0.0.1"
    domain: Final = "queue.localhost"
    accounts: Final = "localhost"
    anonymous: Final = "anon.localhost"
    pubsub: Final = "pubsub.localhost"

    def __init__(self, directory: Path | None = None, *, c2s_port: int = 0) -> None:
        """Choose a directory (None: a temporary one), a port for clients (0: any), one for components and a component secret."""
        super().__init__(directory, "ejabberd")
        self.c2s_port = c2s_port or free_port()
        self.component_port = free_port()
        self.secret = secrets.token_hex(16)
        self._environment: dict[str, str] = {}

    def settings(self, redis_url: str) -> dict[str, str]:
        """Return the settings of a frontend of this server."""
        return {
            "REDIS_URL": redis_url,
            "XMPP_SERVER": f"{self.host}:{self.component_port}",
            "XMPP_DOMAIN": self.domain,
            "XMPP_SECRET": self.secret,
        }

    def open_settings(self, redis_url: str) -> dict[str, str]:
        """Return the same for a benchmark, whose anonymous accounts use each other's nodes."""
        admits = {
            "NODE_CREATION": "anyone",
            "PARTITION_QUOTA": "1000000",
            "DEFAULT_ACCESS_MODEL": "open",
            "TRUSTED_DOMAINS": self.anonymous,
        }
        return self.settings(redis_url) | admits

    def _launch(self) -> Process:
        spool = self.directory / "spool"
        spool.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "ejabberd.yml"
        configuration.write_text(self._configuration())
        return Process(
            [
                _erl(),
                "+K",
                "true",
                "+sss",
                "8192",
                "+P",
                "250000",
                "-noinput",
                "-mnesia",
                "dir",
                f'"{spool}"',
                "-s",
                "ejabberd",
            ],
            directory=spool,
            log=self.directory / "console.log",
            environment={
                "PATH": os.environ.get("PATH", os.defpath),
                "HOME": str(self.directory),
                "ERL_LIBS": str(_libraries()),
                # Erlang's crash dump takes seconds to write and nobody reads it.
                "ERL_CRASH_DUMP_BYTES": "0",
                "EJABBERD_CONFIG_PATH": str(configuration),
                "EJABBERD_LOG_PATH": str(self.directory / "ejabberd.log"),
                **self._environment,
            },
        )

    def _configuration(self) -> str:
        return Template(_template()).substitute(
            c2s_port=self.c2s_port, component_port=self.component_port, secret=self.secret
        )

    def register(self, user: str, password: str, *, known: bool = False) -> str:
        """Register an account and return its bare JID; one that is `known` may exist already."""
        answer = conversation.register(self.c2s_port, self.accounts, user, password)
        if answer and not (known and "<conflict" in answer):
            msg = f"ejabberd made no account {user}: {answer}"
            raise ServerError(msg)
        return f"{user}@{self.accounts}"

    def _ready(self) -> bool:
        # A port may open before a failing module ends the start: only a complete handshake proves readiness. The probe has
        # a domain of its own, so that no stanza for the real one is routed to it.
        return conversation.component_accepted(
            self.component_port, _PROBE, self.secret
        ) and conversation.client_welcome(self.c2s_port, self.accounts)
