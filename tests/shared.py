"""One ejabberd for all workers of pytest: the process that started them starts it when the first one asks, and ends it.

Each worker has domains and accounts of its own there. A plugin of pytest, which tests/conftest.py registers. Must not know any
test.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest

from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.process import ServerError

_WAITING: Final = 100
"""More workers than any machine starts: each may ask while ejabberd is being started for another."""


class _Running(Ejabberd):
    """An ejabberd that another process has started, and ends."""

    def __init__(self, directory: Path, c2s_port: int, component_port: int, secret: str) -> None:
        super().__init__(directory, c2s_port=c2s_port)
        self.component_port, self.secret = component_port, secret


class SharedServer:
    """Starts ejabberd for workers; a process without workers does so itself."""

    def __init__(self) -> None:
        """Begin without workers."""
        self._listener: Listener | None = None
        # The server dies with the thread that has started it, so one thread lasts as long as the session.
        self._thread = Thread(target=self._serve)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:  # noqa: ANN401  (xdist has no types)
        """Tell a worker where to ask."""
        if self._listener is None:
            self._listener = Listener(family="AF_UNIX", backlog=_WAITING)
            self._thread.start()
        node.workerinput["ejabberd"] = self._listener.address

    def pytest_unconfigure(self) -> None:
        """End the server."""
        if self._listener is not None:
            with Client(self._listener.address) as connection:
                connection.send("end")
            self._thread.join()

    def _serve(self) -> None:
        assert self._listener is not None
        with self._listener as listener, ExitStack() as stack:
            server: Ejabberd | None = None
            while True:
                with listener.accept() as connection:
                    if _question(connection) == "end":
                        return
                    try:
                        server = server or stack.enter_context(Ejabberd())
                    except ServerError as fault:
                        connection.send(fault)
                    else:
                        connection.send((server.directory, server.c2s_port, server.component_port, server.secret))


def _question(connection: Connection) -> str:
    """Return what is asked; nothing if the worker has died."""
    try:
        return str(connection.recv())
    except (EOFError, OSError):
        return ""


@contextmanager
def ejabberd(config: pytest.Config) -> Iterator[Ejabberd]:
    """Provide the server to this process; raises ServerError."""
    address = getattr(config, "workerinput", {}).get("ejabberd")
    if address is None:
        with Ejabberd() as server:
            yield server
        return
    with Client(address) as connection:
        connection.send("start")
        answer = connection.recv()
    if isinstance(answer, ServerError):
        raise answer
    yield _Running(*answer)
