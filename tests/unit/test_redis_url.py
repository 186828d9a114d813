"""What the URL of a Redis says, of one server and of several."""

import pytest
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection

from broker.address import Address
from broker.redis_url import RedisUrl, Topology, add_sentinel_login, read_url


def test_one_server() -> None:
    """A URL of one server is redis-py's to read."""
    assert read_url("redis://u:p%40@h:1/3") == RedisUrl(
        Topology.SERVER, {"host": "h", "port": 1, "db": 3, "username": "u", "password": "p@"}
    )
    assert read_url("unix:///s").options == {"path": "/s", "connection_class": UnixDomainSocketConnection}


def test_cluster() -> None:
    """Nodes have Redis's port when none is written; what connects to them is the same for all."""
    assert read_url("redis+cluster://u:p%40@a:7000,b,[::1]:7002") == RedisUrl(
        Topology.CLUSTER,
        {"db": 0, "username": "u", "password": "p@"},
        (Address("a", 7000), Address("b", 6379), Address("::1", 7002)),
    )


def test_sentinels() -> None:
    """Sentinels have a port of their own; the service may be followed by a database."""
    assert read_url("rediss+sentinel://a,b:26380/my%20jobs/3?ssl_cert_reqs=none") == RedisUrl(
        Topology.SENTINEL,
        {"db": 3, "connection_class": SSLConnection, "ssl_cert_reqs": "none"},
        (Address("a", 26379), Address("b", 26380)),
        "my jobs",
        {"connection_class": SSLConnection, "ssl_cert_reqs": "none"},
    )


def test_login_of_sentinels() -> None:
    """Sentinels get a user and a password of their own, never those of Redis."""
    read = read_url("redis+sentinel://u:p@a/jobs?sentinel_username=s&sentinel_password=%25x+y%26&client_name=c")
    assert read.options == {"db": 0, "username": "u", "password": "p", "client_name": "c"}
    assert read.sentinel_options == {"username": "s", "password": "%x+y&", "client_name": "c"}
    for url in ("redis+sentinel://u:p@a/jobs", "redis+sentinel://u:p@a/jobs?client_name=c"):
        added = read_url(add_sentinel_login(url, username="", password="%x+y&#"))
        assert added.sentinel_options == read_url(url).sentinel_options | {"password": "%x+y&#"}


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "redis+sentinel"])
@pytest.mark.parametrize("before", ["hunter2", "1"])
@pytest.mark.parametrize(
    ("character", "written"), [("#", "%23"), ("/", "%2F"), ("?", "%3F"), ("[", "%5B"), ("]", "%5D")]
)
def test_characters_to_escape(scheme: str, before: str, character: str, written: str) -> None:
    """A character that would end the password early is named, and how to write it, even if the rest makes a valid URL."""
    with pytest.raises(ValueError, match="must be written") as refused:
        read_url(f"{scheme}://user:{before}{character}hunter2@host:6379/0")
    assert str(refused.value) == f"its user or password has a {character} that must be written {written}"
    name = f"hunter2{written}1"
    service = "jobs/" if scheme == "redis+sentinel" else ""
    assert read_url(f"{scheme}://user:{name}@[::1]:6379/{service}0").options["password"] == f"hunter2{character}1"


def test_an_at_sign_in_an_option() -> None:
    """Options may have what a password may not."""
    assert read_url("redis://h/0?client_name=a/b@c").options["client_name"] == "a/b@c"
    assert read_url("redis+sentinel://h/s?sentinel_password=a/b@c").sentinel_options["password"] == "a/b@c"
