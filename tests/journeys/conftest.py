"""Shared by journeys: one service for all that leave it unchanged, and clients that are closed after the test."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.redis import RedisServer, redis_binary
from tests.doors.frontend import ALICE, HASH, PASSWORD
from tests.doors.rest.served import RestFrontend
from tests.journeys.client import Client, Delivery
from tests.journeys.service import DOMAIN, Frontend, Service
from tests.operations import as_user, make_user

Join = Callable[..., Awaitable[Client]]
Account = dict[str, Any]
"""The arguments of a worker or publisher."""


@pytest.fixture(scope="session")
def service(ejabberd: Ejabberd) -> Iterator[Service]:
    """Provide a service of two frontends."""
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(RedisServer(binary=redis_binary()))
        make_user(redis.url, "stanzaq")
        url = as_user(redis.url, "stanzaq")
        pair = [stack.enter_context(Frontend(url, ejabberd.component_port, ejabberd.secret)) for _frontend in range(2)]
        yield Service(ejabberd, redis, tuple(pair))


@pytest.fixture
async def join(service: Service) -> AsyncIterator[Join]:
    """Return a function that makes clients: without arguments an anonymous one, with a JID and a password that account."""
    clients: list[Client] = []

    async def make(jid: str = "", password: str = "", form: str = "") -> Client:
        client = Client(service.ejabberd.c2s_port, service.domain, jid or service.ejabberd.anonymous, password, form)
        clients.append(client)
        await client.open()
        return client

    yield make
    await asyncio.gather(*(client.close() for client in clients))


@pytest.fixture
def account(service: Service) -> tuple[str, str]:
    """Return the bare JID and the password of a new account."""
    return service.ejabberd.register(f"worker-{secrets.token_hex(4)}", "secret"), "secret"


@pytest.fixture(scope="session")
def door(service: Service) -> Iterator[RestFrontend]:
    """Provide an HTTP frontend of the same service."""
    with RestFrontend(service.redis.url, HTTP_PASSWORDS=f"{ALICE}:{HASH}") as frontend:
        yield frontend


@pytest.fixture
def over_xmpp(service: Service, account: tuple[str, str]) -> Account:
    """Return the arguments of a worker or publisher of a new account."""
    address = f"127.0.0.1:{service.ejabberd.c2s_port}"
    url, password = f"xmpp://{account[0]}", account[1]
    return {"url": url, "service": DOMAIN, "password": password, "address": address, "tls": "disabled"}


@pytest.fixture(params=["xmpp", "http"])
def user(request: pytest.FixtureRequest) -> Account:
    """Return the arguments of a worker or publisher, over each transport."""
    if request.param == "xmpp":
        found: Account = request.getfixturevalue("over_xmpp")
        return found
    return over_http(request.getfixturevalue("door").port)


def over_http(port: int) -> Account:
    """Return the arguments of a worker or publisher at an HTTP frontend."""
    return {"url": f"http://{ALICE}@127.0.0.1:{port}", "password": PASSWORD}


async def holding(join: Join, item: str = "i1", **options: str) -> tuple[Client, Client, str, Delivery]:
    """Return an owner, a worker of credit 1 that holds an item, the node and the delivery."""
    owner, worker = await join(), await join()
    node = await owner.queue({name.replace("__", "#"): value for name, value in options.items()})
    assert (await worker.subscribe(node)).error == ""
    assert (await owner.publish(node, item)).error == ""
    return owner, worker, node, await worker.next(Delivery)
