"""A private RabbitMQ of Debian's package, on loopback and free ports. Knows how to start it; must not know what it is sent.

The script of the package becomes the server by exec if it believes that systemd started it. Erlang's port mapper (epmd) is
started before the server, which would otherwise start one that listens everywhere and outlives it.
"""

import os
import shutil
import socket
from pathlib import Path
from typing import Final

from frontends.tools.servers.process import Process, Server, ServerError, free_ports

_SCRIPT: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_GREETING: Final = b"AMQP\x00\x00\x09\x01"


class RabbitMQ(Server):
    """One RabbitMQ without plugins; its user is `guest`."""

    _ready_seconds = 60.0

    def __init__(self) -> None:
        """Choose ports. Raises ServerError if the package is not installed."""
        if not _SCRIPT.exists():
            msg = "RabbitMQ is not installed: apt-get install rabbitmq-server"
            raise ServerError(msg)
        super().__init__(None, "rabbitmq")
        self._port, self._distribution_port, self._epmd_port = free_ports(3)
        self._epmd: Process | None = None

    @property
    def url(self) -> str:
        """Its URL."""
        return f"amqp://guest:guest@127.0.0.1:{self._port}/"

    @property
    def version(self) -> str:
        """Its version, which is in the name of the script's directory."""
        return _SCRIPT.resolve().parent.parent.name.partition("-")[2]

    def _launch(self) -> Process:
        (self.directory / "enabled_plugins").write_text("[].\n")
        environment = self._environment()
        mapper = shutil.which("epmd")
        assert mapper is not None, "the package depends on it"
        self._epmd = self._started([mapper, "-address", "127.0.0.1", "-port", str(self._epmd_port)], environment)
        return self._started([str(_SCRIPT)], environment)

    def _started(self, command: list[str], environment: dict[str, str]) -> Process:
        return Process(command, directory=self.directory, log=self.directory / "log", environment=environment)

    def _environment(self) -> dict[str, str]:
        own = {
            "NODENAME": "peers@localhost",
            "NODE_IP_ADDRESS": "127.0.0.1",
            "NODE_PORT": str(self._port),
            "DIST_PORT": str(self._distribution_port),
            "SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "MNESIA_BASE": str(self.directory / "data"),
            "LOGS": "-",
            "ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            # The files of the system's service are not read.
            "CONF_ENV_FILE": os.devnull,
            "CONFIG_FILE": str(self.directory / "rabbitmq"),
            "ADVANCED_CONFIG_FILE": str(self.directory / "advanced"),
        }
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            # Erlang keeps its cookie there.
            "HOME": str(self.directory),
            "RUNNING_UNDER_SYSTEMD": "true",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            **{f"RABBITMQ_{name}": value for name, value in own.items()},
        }

    def _ready(self) -> bool:
        """Tell whether it answers the greeting of AMQP 0-9-1 with its first method."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), 1.0) as connection:
                connection.sendall(_GREETING)
                return connection.recv(1) == b"\x01"
        except OSError:
            return False

    def __exit__(self, *reason: object) -> None:
        """End it, then the port mapper."""
        super().__exit__(*reason)
        if self._epmd is not None:
            self._epmd.stop()
