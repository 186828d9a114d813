"""Signals that a frontend gets, and waiting for events. Must not know what a frontend is."""

import asyncio
import signal
from typing import Any


def on_signal() -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets; a second signal ends the process without a drain."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        stopping.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return stopping


def on_hangup() -> asyncio.Event:
    """Return an event that each SIGHUP sets: it ends nothing, but asks to look at files."""
    hangup = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hangup.set)
    return hangup


async def wait_for_any(*events: asyncio.Event) -> None:
    """Wait for one of several events."""
    waiting = [asyncio.create_task(each.wait()) for each in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for each in waiting:
        each.cancel()


async def run_until(stopping: asyncio.Event, starting: asyncio.Task[Any]) -> None:
    """Wait until `starting` is done or `stopping` is set, which cancels it."""
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait([waiting, starting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    starting.cancel()
