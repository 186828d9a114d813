"""Redis over TLS: one server, a cluster and sentinels, with a private authority and with client certificates."""

import asyncio
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import SecretStr

from broker import codec
from broker.analytics.faults import Unreadable
from broker.analytics.source.servers import Servers
from broker.model.commands import Declare, Publish, Retract, Subscribe
from broker.model.items.items import Envelope
from broker.model.names import Jid
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Declared, Published, Refused, Retracted, Subscribed
from broker.redis_core.core import RedisCore
from broker.redis_core.redis_client.client import Server
from broker.redis_core.redis_client.diagnostics import Level, examine
from broker.scripts.location import lua_directory
from broker.settings import Settings, SettingsError, load_redis
from frontends.tools.servers.cluster import RedisCluster
from frontends.tools.servers.process import free_port, free_ports
from frontends.tools.servers.redis import RedisServer, redis_binary
from frontends.tools.servers.sentinels import SERVICE, RedisSentinel
from tests.admitting import ADMITTING
from tests.certificates import Authority
from tests.contract.conftest import Door
from tests.operations import as_user, make_user

ALICE, WORKER = Jid("alice@x/home"), Jid("worker@x/a")


class Secure(RedisServer):
    """A Redis that speaks only TLS at its port."""

    def __init__(self, more: Mapping[str, str]) -> None:
        """Choose its certificates."""
        self.tls_port = free_port()
        super().__init__(binary=redis_binary(), options={"tls-port": str(self.tls_port), **more})


class SecureCluster(RedisCluster):
    """Three masters that speak TLS with each other too."""

    def __init__(self, more: Mapping[str, str]) -> None:
        """Choose their certificates."""
        super().__init__(3, 0, options={**more, "tls-cluster": "yes"})
        self.tls_ports = free_ports(len(self.nodes))
        for node, port in zip(self.nodes, self.tls_ports, strict=True):
            node._binary = redis_binary()
            node._options["tls-port"] = str(port)


class SecureSentinel(RedisSentinel):
    """A sentinel that is asked, and watches, over TLS."""

    def __init__(self, master: Secure, more: Mapping[str, str]) -> None:
        """Watch the master."""
        super().__init__(master)
        self._binary = redis_binary()
        self.tls_port = free_port()
        self._more = {**more, "tls-port": str(self.tls_port), "tls-replication": "yes"}
        self._watched = master.tls_port

    def _command(self) -> list[str]:
        command = super()._command()
        configuration = self.directory / "sentinel.conf"
        text = configuration.read_text().replace("127.0.0.1 0 ", f"127.0.0.1 {self._watched} ")
        configuration.write_text(text + "".join(f"{name} {value}\n" for name, value in self._more.items()))
        return command


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return the authority of the servers' and clients' certificates."""
    return Authority(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return another one, which nobody should trust."""
    return Authority(tmp_path_factory.mktemp("tls") / "other")


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[Secure]:
    """Provide a Redis that requires no client certificate."""
    with Secure(authority.server(clients=False)) as found:
        yield found


@pytest.fixture(scope="module")
def careful(authority: Authority) -> Iterator[Secure]:
    """Provide one that does."""
    with Secure(authority.server(clients=True)) as found:
        yield found


def options(authority: Authority, signer: Authority | None = None) -> str:
    """Return the options of a URL: the authority to trust, and the certificate to show."""
    given = f"?ssl_ca_certs={authority.certificate}"
    if signer is not None:
        certificate, key = signer.sign("client")
        given += f"&ssl_certfile={certificate}&ssl_keyfile={key}"
    return given


async def refusal(url: str) -> str:
    """Try a command; return the sentence that says why it fails."""
    settings = Settings(**ADMITTING, redis_url=url, xmpp_domain="q.localhost", xmpp_secret=SecretStr("secret"))
    found = Server.connect(settings.redis_url, lua_directory(), 2.0)
    try:
        with pytest.raises(CoreUnavailable) as caught:
            await found.command("TIME")
    finally:
        await found.close()
    return str(caught.value)


async def works(url: str) -> None:
    """Publish and finish an item, run the doctor, and let the source of reports find the streams."""
    door, node = Door(), f"jobs-{secrets.token_hex(4)}"
    core = RedisCore(
        Settings(**ADMITTING, redis_url=url, xmpp_domain="q.localhost", xmpp_secret=SecretStr("secret")), door
    )
    await core.start()
    assert await core.ask(Declare(node, ALICE, {})) == Declared(node)
    assert isinstance(await core.ask(Subscribe(node, WORKER, WORKER, 1)), Subscribed)
    assert isinstance(await core.ask(Publish(node, ALICE, "a", codec.pack(Envelope(b"<a/>")), 4)), Published)
    await door.until(lambda: len(door.deliveries) == 1)
    assert isinstance(await core.ask(Retract(node, WORKER, "a", door.deliveries[0].token)), Retracted)
    await core.stop()
    levels = {each.what: each.level for each in await examine(url, 2.0)}
    assert levels["role"] is Level.FINE and "connection" not in levels
    servers = Servers(url)
    for process in servers.processes():
        with servers.link(process) as link:
            assert len(link.ask("TIME")) == 2


async def test_one_server(server: Secure, authority: Authority) -> None:
    """With the authority of Redis's certificate everything works, as a user with a password too."""
    url = f"rediss://127.0.0.1:{server.tls_port}/0{options(authority)}"
    await works(url)
    make_user(server.url, "stanzaq")
    await works(as_user(url, "stanzaq"))


async def test_nobody_is_trusted_by_chance(server: Secure, authority: Authority, other: Authority) -> None:
    """A certificate of an authority that was not named, or for another name, is refused with a sentence."""
    at = f"rediss://127.0.0.1:{server.tls_port}/0"
    for url in (at, at + options(other)):
        said = await refusal(url)
        assert f"certificate of Redis at 127.0.0.1:{server.tls_port} is not trusted" in said and "ssl_ca_certs" in said
        (finding,) = await examine(url, 2.0)
        assert finding.level is Level.PROBLEM and finding.found == said
        servers = Servers(url)
        with pytest.raises(Unreadable, match="CERTIFICATE_VERIFY_FAILED"), servers.link(servers.processes()[0]):
            pass
    assert "not trusted (" in await refusal(f"rediss://localhost:{server.tls_port}/0{options(authority)}")


async def test_certificate_of_a_client(careful: Secure, authority: Authority, other: Authority) -> None:
    """Where clients must show a certificate, only one of the right authority works."""
    at = f"rediss://127.0.0.1:{careful.tls_port}/0"
    await works(at + options(authority, authority))
    for url in (at + options(authority), at + options(authority, other)):
        # Redis refuses after the client's part of the handshake (TLS 1.3) and hangs up: its message may be lost.
        said = await refusal(url)
        named = f"Redis at 127.0.0.1:{careful.tls_port}"
        assert said.startswith((f"TLS with {named} fails (", f"{named} cannot be reached: "))


@pytest.mark.parametrize(
    ("url", "place", "reason"),
    [
        ("redis://127.0.0.1:1/0", "127.0.0.1:1", "connection refused"),
        ("redis://nobody.invalid/0", "nobody.invalid:6379", "no such host"),
        ("unix:///nowhere/redis.sock", "/nowhere/redis.sock", "no such socket"),
        ("redis://127.0.0.1:HTTP/0", "127.0.0.1:HTTP", "the server is not a Redis"),
    ],
)
async def test_wrong_url(url: str, place: str, reason: str) -> None:
    """A URL that leads to no Redis is reported with its address and the reason; clients learn no address."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as http:
        port = str(http.sockets[0].getsockname()[1])
        url, place = url.replace("HTTP", port), place.replace("HTTP", port)
        told = f"Redis at {place} cannot be reached: {reason}"
        assert await refusal(url) == told
        (finding,) = await examine(url, 2.0)
        assert (finding.level, finding.found) == (Level.PROBLEM, told)
        quiet = RedisCore(
            Settings(**ADMITTING, redis_url=url, xmpp_domain="q.localhost", xmpp_secret=SecretStr("secret")), None
        )
        assert await quiet.ask(Declare("jobs", ALICE, {})) == Refused(Problem.UNAVAILABLE, "Redis cannot be reached")
        await quiet.stop()


async def test_other_refusals(server: Secure) -> None:
    """TLS with a plain-text Redis, and a wrong password, each have their sentence; the password is in none."""
    with RedisServer(port=0) as plain:
        assert (
            await refusal(f"rediss://127.0.0.1:{plain.port}/0")
            == f"Redis at 127.0.0.1:{plain.port} did not answer in time"
        )
        said = await refusal(f"redis://stanzaq:mellon@127.0.0.1:{plain.port}/0")
        assert said == f"Redis at 127.0.0.1:{plain.port} refuses the user or password of REDIS_URL"
    assert "mellon" not in await refusal(f"redis://stanzaq:mellon@127.0.0.1:{server.tls_port}/0")


async def test_cluster(authority: Authority) -> None:
    """All masters of a cluster are reached over TLS, at the ports that they announce."""
    with SecureCluster(authority.server(clients=True)) as cluster:
        hosts = ",".join(f"127.0.0.1:{port}" for port in cluster.tls_ports)
        await works(f"rediss+cluster://{hosts}{options(authority, authority)}")


async def test_sentinels(careful: Secure, authority: Authority) -> None:
    """Sentinels are asked over TLS, with the same certificates, and so is the master."""
    with ExitStack() as stack:
        more = authority.server(clients=True)
        sentinels = [stack.enter_context(SecureSentinel(careful, more)) for _ in range(3)]
        hosts = ",".join(f"127.0.0.1:{sentinel.tls_port}" for sentinel in sentinels)
        await works(f"rediss+sentinel://{hosts}/{SERVICE}{options(authority, authority)}")


def test_url_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The whole URL, with its password, may be in a file."""
    (tmp_path / "redis-url").write_text("rediss://u:mellon%40@h/0?ssl_check_hostname=false\n")
    monkeypatch.setenv("STANZAQ_REDIS_URL_FILE", str(tmp_path / "redis-url"))
    settings = load_redis()
    assert settings.redis_url == "rediss://u:mellon%40@h/0?ssl_check_hostname=false"
    assert "mellon" not in repr(settings)


def test_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A missing certificate is reported before anything is connected; the password of the URL is not repeated."""
    monkeypatch.setenv("STANZAQ_REDIS_URL", f"rediss://u:mellon@h/0?ssl_ca_certs={tmp_path}/no.crt")
    with pytest.raises(SettingsError, match=r"ssl_ca_certs in it: .*No such file.*no\.crt") as caught:
        load_redis()
    assert "mellon" not in str(caught.value)
