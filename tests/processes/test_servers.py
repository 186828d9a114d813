"""Private servers: they start, answer, keep their data, and die with the process that started them."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from frontends.tools.servers import conversation
from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.process import ServerError, free_ports
from frontends.tools.servers.redis import RedisServer, redis_binary, valkey_binary
from tests.waiting import PATIENCE_SECONDS

BINARIES = pytest.mark.parametrize("binary", [valkey_binary, redis_binary])

_STARTERS = {
    "valkey": "from frontends.tools.servers.redis import RedisServer; server = RedisServer()",
    "redis": (
        "from frontends.tools.servers.redis import RedisServer, redis_binary; server = RedisServer(binary=redis_binary())"
    ),
    "ejabberd": "from frontends.tools.servers.ejabberd import Ejabberd; server = Ejabberd()",
}


def _say(server: RedisServer, *words: str) -> str:
    """Send a server a command over its unix socket, without any client library."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(5)
        peer.connect(server.url.removeprefix("unix://"))
        peer.sendall(" ".join(words).encode() + b"\r\n")
        return peer.recv(4096).decode().strip()


def test_free_ports() -> None:
    """A free port is given to nobody who asks for any port, and to a server that asks for it."""
    ports = free_ports(50)
    for port in ports:
        with socket.socket() as another, pytest.raises(OSError, match="in use"):
            another.bind(("127.0.0.1", port))
        socket.create_server(("127.0.0.1", port)).close()
    assert len(set(ports)) == 50


@BINARIES
def test_redis_keeps_its_data(binary: Callable[[], Path], tmp_path: Path) -> None:
    """With an append-only file written always, answered writes survive SIGKILL, at the same address."""
    options = {"appendonly": "yes", "appendfsync": "always"}
    with RedisServer(tmp_path / "data", binary=binary(), options=options) as server:
        assert _say(server, "SET", "key", "value") == "+OK"
        server.kill()
        server.start()
        assert _say(server, "GET", "key") == "$5\r\nvalue"


@BINARIES
def test_redis_over_tcp(binary: Callable[[], Path]) -> None:
    """With a port, a server listens on it, on the loopback address alone."""
    with RedisServer(binary=binary(), port=0) as server:
        host, _, port = server.url.removeprefix("redis://").removesuffix("/0").partition(":")
        assert host == "127.0.0.1"
        with socket.create_connection((host, int(port)), 5) as peer:
            peer.sendall(b"PING\r\n")
            assert peer.recv(64) == b"+PONG\r\n"


def test_redis_never_evicts(valkey: RedisServer) -> None:
    """A private Redis refuses writes instead of evicting items (guarantee 1)."""
    assert _say(valkey, "CONFIG", "GET", "maxmemory-policy").endswith("noeviction")


def test_redis_leaves_nothing() -> None:
    """A server without a directory of its own removes its temporary one."""
    with RedisServer() as server:
        assert server.directory.is_dir()
    assert not server.directory.exists()


def test_directory_in_use(tmp_path: Path) -> None:
    """A second server on one directory would ruin its file: it is refused, with the address of the first one."""
    with RedisServer(tmp_path / "data") as first:
        with pytest.raises(ServerError, match="another Redis is using") as caught:
            RedisServer(tmp_path / "data").start()
        assert first.url in str(caught.value)


def test_failed_start_shows_the_log() -> None:
    """When a server ends instead of starting, the error has the end of its output."""
    with (
        pytest.raises(ServerError, match=r"(?s)ended with 1.*no-such-option"),
        RedisServer(options={"no-such-option": "1"}),
    ):
        pass


def test_directory_name_too_long(tmp_path: Path) -> None:
    """A directory whose name is too long for a unix socket is refused with a remedy."""
    with pytest.raises(ServerError, match="choose a directory with a shorter name"):
        RedisServer(tmp_path / ("x" * 120)).start()


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing server is reported in one line with the command that installs it."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ServerError, match="apt-get install redis-server"):
        redis_binary()
    with pytest.raises(ServerError, match="apt-get install ejabberd"), Ejabberd():
        pass


def test_ejabberd(ejabberd: Ejabberd) -> None:
    """Two components of one domain connect with the secret, none without; clients reach both hosts."""
    for _ in range(2):
        assert conversation.component_accepted(ejabberd.component_port, "pair.localhost", ejabberd.secret)
    assert not conversation.component_accepted(ejabberd.component_port, "pair.localhost", "wrong")
    assert conversation.client_welcome(ejabberd.c2s_port, ejabberd.accounts)
    assert conversation.client_welcome(ejabberd.c2s_port, ejabberd.anonymous)
    assert not conversation.client_welcome(ejabberd.c2s_port, "elsewhere.example.org")


def test_ejabberd_accounts(ejabberd: Ejabberd) -> None:
    """An account is created once; its password may have characters that XML does not allow."""
    assert ejabberd.register("benvolio", "a<b&'c\"") == "benvolio@localhost"
    with pytest.raises(ServerError, match="conflict"):
        ejabberd.register("benvolio", "other")


@pytest.mark.parametrize("starter", _STARTERS.values(), ids=_STARTERS.keys())
def test_dies_with_its_parent(starter: str, tmp_path: Path) -> None:
    """SIGKILL to the process that started a server ends the server as well, at once."""
    waiting = f"{starter}; print(server.start().process.pid, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", waiting],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as parent:
        assert parent.stdout is not None
        end = os.pidfd_open(int(parent.stdout.readline()))
        assert not select.select([end], [], [], 0)[0]
        parent.send_signal(signal.SIGKILL)
        assert select.select([end], [], [], PATIENCE_SECONDS)[0]
        os.close(end)
