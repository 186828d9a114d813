"""What the URL of a Redis says, of one server and of several."""

from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection

from broker.address import Address
from broker.redis_url import RedisUrl, Topology, read_url


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
    )
