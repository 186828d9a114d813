"""The lossy network for tests that have no event loop: it runs in a thread of its own."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.contract.proxy import LossyNetwork


@contextmanager
def network(socket_path: str) -> Iterator[LossyNetwork]:
    """Run a network to the Redis on this unix socket; its switches are plain values that any thread may set."""
    built, running = threading.Event(), LossyNetwork(socket_path)
    loop, ending = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with running:
            built.set()
            await ending.wait()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        thread = threading.Thread(target=runner.run, args=[serve()])
        thread.start()
        built.wait()
        try:
            yield running
        finally:
            loop.call_soon_threadsafe(ending.set)
            thread.join()
