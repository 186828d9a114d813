"""Shared by the tests of the plugin: a loop with a stopped clock, and a stream on it."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.unit.xep_qos.stream import StillLoop, Stream


@pytest.fixture
def loop() -> Iterator[StillLoop]:
    """Provide a loop, and end what is left on it."""
    loop = StillLoop()
    yield loop
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.settle()
    loop.close()
    asyncio.set_event_loop(None)


@pytest.fixture
def stream(loop: StillLoop) -> Stream:
    """Give a stream with a session."""
    stream = Stream(loop)
    stream.bind()
    return stream
