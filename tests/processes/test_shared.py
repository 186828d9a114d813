"""Workers of pytest share one ejabberd, which ends with the session."""

from types import SimpleNamespace
from typing import Any

import pytest

from frontends.tools.servers import conversation
from frontends.tools.servers import ejabberd as module
from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.process import ServerError
from tests import shared


def _worker(plugin: shared.SharedServer) -> Any:  # noqa: ANN401  (of pytest and xdist)
    """Return what the plugin tells a new worker."""
    worker = SimpleNamespace(workerinput={})
    plugin.pytest_configure_node(worker)
    return worker


def test_workers() -> None:
    """All get the same one: it is started once, serves those that come later, and is gone afterwards."""
    plugin = shared.SharedServer()
    with shared.ejabberd(_worker(plugin)) as first, shared.ejabberd(_worker(plugin)) as second:
        assert first.c2s_port == second.c2s_port and first.directory == second.directory
    assert first.register("escalus", "secret") == "escalus@localhost"
    plugin.pytest_unconfigure()
    assert not conversation.client_welcome(first.c2s_port, Ejabberd.accounts) and not first.directory.exists()


def test_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker is told why it cannot be had."""
    monkeypatch.setattr(module, "_LIBRARIES", ())
    plugin = shared.SharedServer()
    for _ in range(2):
        with pytest.raises(ServerError, match="apt-get install ejabberd"), shared.ejabberd(_worker(plugin)):
            pass
    plugin.pytest_unconfigure()
