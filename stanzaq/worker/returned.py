"""What a handler returns, until the work behind it has ended. Must not know where the handler ran."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Iterator
from concurrent.futures import Future
from typing import Any


def is_pending(value: object) -> bool:
    """Return whether work goes on behind what a handler has returned, or has not begun."""
    return inspect.isawaitable(value) or isinstance(value, (Future, Iterator, AsyncIterator))


async def wait_until_done(value: Any) -> Any:  # noqa: ANN401  (what a handler returns)
    """Await what a handler has returned for as long as that can be awaited, each in its own loop.

    Raises what that raises, and TypeError for an iterator, whose work has not begun.
    """
    while is_pending(value):
        if isinstance(value, asyncio.Future) and value.get_loop() is not asyncio.get_running_loop():
            if not (value.done() or value.get_loop().is_running()):
                msg = "the handler returned a future of an event loop that does not run"
                raise RuntimeError(msg)
            value = value.result() if value.done() else asyncio.run_coroutine_threadsafe(_wait(value), value.get_loop())
            continue
        if isinstance(value, Future):
            value = await asyncio.wrap_future(value)
        elif inspect.isawaitable(value):
            value = await value
        else:
            msg = f"the handler returned a {type(value).__name__}, whose work has not begun: return a list"
            raise TypeError(msg)
    return value


async def _wait(value: Awaitable[Any]) -> Any:  # noqa: ANN401
    return await value
