"""Every values file of the chart's `ci/`, rendered once by each Helm; a frontend that runs."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from frontends.tools.demo.frontend import Frontend
from frontends.tools.servers.ejabberd import Ejabberd
from tests.helm.charts import HELMS, NAMES, SPARK, Object, rendered, values

DOMAIN = "helm.localhost"
Everything = dict[tuple[str, str], list[Object]]


@pytest.fixture(scope="session")
def everything() -> Everything:
    """Render all of it."""
    pairs = list(product(HELMS, NAMES))

    def render(pair: tuple[str, str]) -> list[Object]:
        version, name = pair
        return rendered(version, "--values", values(name), *(SPARK if name == "spark-operator" else ()))

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(pairs, pool.map(render, pairs), strict=True))


@pytest.fixture(params=NAMES)
def objects(request: pytest.FixtureRequest, everything: Everything) -> list[Object]:
    """Return the objects of one values file after the other."""
    found: str = request.param
    return everything["helm4", found]


@pytest.fixture(scope="session")
def frontend(ejabberd: Ejabberd) -> Iterator[Frontend]:
    """Provide a frontend with a Redis of its own."""
    settings = {
        "REDIS_URL": "embedded://",
        "XMPP_SERVER": f"{ejabberd.host}:{ejabberd.component_port}",
        "XMPP_DOMAIN": DOMAIN,
        "XMPP_SECRET": ejabberd.secret,
    }
    with Frontend(settings) as running:
        yield running
