"""The plugin of pytest: a service for tests, as `stanzaq dev` runs it.

Each pytest loads it, so only the fixture imports the service. Must not know what tests send.
"""

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from stanzaq.service import require_service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frontends.tools.dev import Service


@pytest.fixture(scope="session")
def stanzaq_service() -> "Iterator[Service]":
    """Run a whole service on loopback for this session: Redis, ejabberd if it is installed, and a frontend of each door."""
    require_service("testing")
    from frontends.tools.dev import start  # noqa: PLC0415
    from frontends.tools.servers.process import free_ports  # noqa: PLC0415

    with ExitStack() as stack:
        yield start(stack, None, free_ports(3))
