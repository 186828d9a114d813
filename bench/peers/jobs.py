"""What all programs here share: the payload of a job, and how they tell the measurement that jobs begin and end."""

import asyncio
import os
from collections.abc import Awaitable, Callable

PAYLOAD = "x" * 200
UNDER_WAY = 50
"""How many publishes may wait for their answers, where a client is asynchronous."""

_PIPE = os.open(os.environ["PEERS_PIPE"], os.O_WRONLY)


def begin() -> None:
    """Tell that the first job is about to be published."""
    os.write(_PIPE, b"b")


def published() -> None:
    """Tell that all jobs are published."""
    os.write(_PIPE, b"e")


def end() -> None:
    """Tell that a handler has done a job."""
    os.write(_PIPE, b".")


async def publish(count: int, one: Callable[[str], Awaitable[object]]) -> None:
    """Publish jobs, so many at once."""
    begin()
    numbers = iter(range(count))

    async def some() -> None:
        for _ in numbers:
            await one(PAYLOAD)

    async with asyncio.TaskGroup() as group:
        for _ in range(UNDER_WAY):
            group.create_task(some())
    published()
