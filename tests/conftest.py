"""Servers for all tests: real ones, started when first asked for, one of each kind for a pytest process."""

import gc
import os
import signal
import ssl
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings
from structlog.dev import ConsoleRenderer, plain_traceback

from frontends.garbage import collect_rarely
from frontends.tools.servers.cluster import RedisCluster
from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.redis import RedisServer, redis_binary, valkey_binary
from frontends.tools.servers.sentinels import RedisSentinels
from tests import shared
from tests.failure_report import REPORT, FailureReport
from tests.forks import Forks
from tests.redis_latency import SEED, late
from tests.shared import SharedServer

# To collect the tests makes millions of objects and hardly any garbage.
collect_rarely()

# Structlog's own way to print an exception, with the values of all variables, keeps the event loop for up to seconds.
_PLAIN = ConsoleRenderer(exception_formatter=plain_traceback)
structlog.configure(processors=[*structlog.get_config()["processors"][:-1], _PLAIN])

# A loaded machine makes single examples slow, which is no fault; the derandomized run makes CI repeatable.
settings.register_profile("stanzaq", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("stanzaq")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin that adds logs to failures, and let programs that tests start be interrupted."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So a shell starts what it runs in the background, and programs inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(FailureReport(), REPORT)
    config.pluginmanager.register(SharedServer())


def pytest_collection_finish() -> None:
    """Keep all modules and tests, which last as long as the process, out of garbage collections."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def forks() -> Iterator[Forks]:
    """Fork programs, which starts each a second sooner; `forks.suspended()` starts them as users do."""
    with Forks() as forks:
        yield forks


@pytest.fixture(scope="session", autouse=True)
def _no_certificates_of_the_machine() -> Iterator[None]:
    """Trust no authority of the machine: none is needed, and slixmpp reads them all twice for each stream, in 50 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, "set_default_verify_paths", lambda _context: None)
        yield


@pytest.fixture(scope="session", autouse=bool(SEED))
def _late_redis() -> Iterator[None]:
    """Delay Redis's replies to the cores of this process as `REDIS_LATENCY` says."""
    with late(SEED):
        yield


@pytest.fixture(scope="session")
def valkey() -> Iterator[RedisServer]:
    """Provide the embedded server."""
    with RedisServer(binary=valkey_binary()) as server:
        yield server


@pytest.fixture(scope="session")
def redis7() -> Iterator[RedisServer]:
    """Provide the distribution's Redis; `make test` installs it, so its absence is a failure."""
    with RedisServer(binary=redis_binary()) as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """Provide a cluster of three masters and three replicas."""
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def redis_sentinels() -> Iterator[RedisSentinels]:
    """Provide a master with a replica and three sentinels."""
    with RedisSentinels(1) as sentinels:
        yield sentinels


@pytest.fixture(scope="session")
def ejabberd(pytestconfig: pytest.Config) -> Iterator[Ejabberd]:
    """Provide an XMPP server, the same to all workers: names of domains and accounts there are each module's own."""
    with shared.ejabberd(pytestconfig) as server:
        report = pytestconfig.pluginmanager.get_plugin(REPORT)
        assert isinstance(report, FailureReport)
        report.watch(server.directory)
        yield server
