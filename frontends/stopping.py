"""When a frontend is to end: signals, and a start that they call off. Must not know what a frontend is."""

import asyncio
import signal
from typing import Any


def on_signal() -> asyncio.Event:
    """Give an event that SIGTERM or SIGINT sets; a second signal ends the process as if there were no drain."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        stopping.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return stopping


async def any_of(*events: asyncio.Event) -> None:
    """Wait for one of several events."""
    waiting = [asyncio.create_task(each.wait()) for each in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for each in waiting:
        each.cancel()


async def until(stopping: asyncio.Event, starting: asyncio.Task[Any]) -> None:
    """Wait for a start that may take for ever, or for the signal that calls it off."""
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait([waiting, starting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    starting.cancel()
