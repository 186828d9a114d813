"""Publishers of a program under test, which opens them itself: they send to queues of the test. Must not know what is sent."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

from stanzaq import schemes, sync
from stanzaq.queue import Queue
from stanzaq.testing.broker import TestBroker
from stanzaq.testing.sent import Sent
from stanzaq.transport.interface import Outcome, Sender


@contextmanager
def divert(queues: Iterable[Queue | str]) -> Iterator[list[Sent]]:
    """Let each publisher that is opened meanwhile, in any thread, send to these queues; returns what is sent, as it comes."""
    named = [queue if isinstance(queue, Queue) else Queue(queue) for queue in queues]
    begun: Future[Any] = Future()

    async def run() -> None:
        async with TestBroker(nodes={queue.name: queue.options for queue in named}) as broker:
            ends = asyncio.Event()
            begun.set_result((broker, asyncio.get_running_loop(), ends))
            await ends.wait()

    with ThreadPoolExecutor(1, "stanzaq-broker") as thread:
        running: Future[Any] = thread.submit(asyncio.run, run())
        if running in wait({begun, running}, return_when=FIRST_COMPLETED).done:
            running.result()
        broker, loop, ends = begun.result()
        sender = cast("Sender", _Elsewhere(broker._transport.sender(), loop))  # noqa: SLF001  (the same package's)
        try:
            with patch.object(schemes, "sender", lambda _account: sender):
                _close_all()
                yield broker._transport.sent  # noqa: SLF001
        finally:
            _close_all()
            loop.call_soon_threadsafe(ends.set)


def _close_all() -> None:
    """Disconnect blocking publishers, which are often a program's own for as long as it runs: the next publish connects again."""
    for publisher in tuple(sync._publishers):  # noqa: SLF001  (the same package's)
        publisher.close()


class _Elsewhere:
    """A sender whose calls run in another event loop."""

    def __init__(self, sender: Sender, loop: asyncio.AbstractEventLoop) -> None:
        self._sender = sender
        self._loop = loop

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._sender, name)

        async def ask(*given: Any, **more: Any) -> Any:  # noqa: ANN401
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(method(*given, **more), self._loop))

        return ask

    def reply(self, node: str, item: str) -> Callable[[], Awaitable[Outcome]]:
        async def end() -> Outcome:
            return await self._sender.reply(node, item)()

        ending = asyncio.run_coroutine_threadsafe(end(), self._loop)
        return lambda: asyncio.wrap_future(ending)
