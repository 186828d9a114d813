"""The plugin of pytest: a service for tests, as `stanzaq dev` runs it, and queues that take what a program publishes.

Each pytest loads it, so only the fixtures import the service. Must not know what tests send.
"""

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from stanzaq.service import require_service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from frontends.tools.dev import Service
    from stanzaq.queue import Queue
    from stanzaq.testing.sent import Sent


@pytest.fixture(scope="session")
def stanzaq_service() -> "Iterator[Service]":
    """Run a whole service on loopback for this session: Redis, ejabberd if it is installed, and a frontend of each door."""
    require_service("testing")
    from frontends.tools.dev import start  # noqa: PLC0415
    from frontends.tools.servers.process import free_ports  # noqa: PLC0415

    with ExitStack() as stack:
        yield start(stack, None, free_ports(3))


@pytest.fixture
def stanzaq_sent() -> "Iterator[Callable[..., list[Sent]]]":
    """Take what the publishers of a program send, whoever opens them; call it in the test with the queues that there are.

    After `sent = stanzaq_sent("orders", INVOICES)` the list has each item that is published from then on, in order. There are
    the queues that are given, by their names or as they are declared, and no others.
    """
    require_service("testing")
    from stanzaq.testing.diverted import divert  # noqa: PLC0415

    with ExitStack() as stack:

        def take(*queues: "Queue | str") -> "list[Sent]":
            return stack.enter_context(divert(queues))

        yield take
