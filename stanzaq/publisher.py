"""A publisher: sends items, and waits until the service has stored each. Must not know any transport."""

import asyncio
import secrets
from collections.abc import AsyncIterable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from stanzaq import payloads, traceparent, transports
from stanzaq.account import Password, Tls
from stanzaq.durations import Duration, seconds
from stanzaq.errors import StanzaqError
from stanzaq.transport import Hints, Sender

_AT_ONCE: Final = 50
"""Number of items that `publish_many` sends at once."""


class Publisher:
    """Sends items: `async with Publisher(...) as publisher: await publisher.publish("thumbnails", picture)`.

    The arguments are those of `Worker`. A publish whose answer is lost is repeated with the same id until it is answered. While
    the item waits, the repeat replaces it. Once a worker has the item or has completed it, a node with
    `stanzaq#dedupe` = `ignore` ignores the repeat; any other node takes it for a new item.
    """

    def __init__(
        self,
        url: str,
        *,
        service: str | None = None,
        password: Password = None,
        address: str | None = None,
        tls: Tls = "required",
    ) -> None:
        """Check the arguments as a worker does; raises ValueError. Connects only in `async with`."""
        self._account = transports.account(url, service, password, address, tls)
        self._sender: Sender | None = None
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Start to connect; the first publish waits for the connection."""
        self._sender = transports.sender(self._account)
        self._running = asyncio.create_task(self._sender.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        if self._sender is not None and self._running is not None:
            await self._sender.close()
            self._running.cancel()
            await asyncio.wait({self._running})
        self._sender = self._running = None

    async def publish(  # noqa: PLR0913  (what a publisher may ask for)
        self,
        node: str,
        payload: Any,  # noqa: ANN401  (whatever JSON can say, and more)
        *,
        id: str | None = None,  # noqa: A002  (the item's id, as everywhere)
        key: str = "",
        delay: Duration = 0,
        priority: int | None = None,
        ttl: Duration | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Send an item, and return its id once the service has stored it.

        A dict, a list, a dataclass and the like are sent as JSON, an Element as XML, a str as text, bytes unchanged. `key` is
        the group key. The item is not handed out before `delay` nor after `ttl`, which the service counts in whole seconds.
        `priority` is 0 to 9, 4 by default. Raises StanzaqError if the service refuses, TypeError for an unsuitable payload.
        """
        if self._sender is None or self._running is None:
            msg = "the publisher is not open: use it as `async with Publisher(...) as publisher`"
            raise StanzaqError(msg)
        hints = Hints(key, seconds(delay), priority, None if ttl is None else seconds(ttl))
        item = id or secrets.token_hex(16)
        running = self._running
        told = {**traceparent.current(), **(headers or {})}
        sending = asyncio.create_task(self._sender.publish(node, item, payloads.encoded(payload), told, hints))
        try:
            # A connection that fails for good ends everything that waits for it.
            await asyncio.wait({sending, running}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = sending.done()
            sending.cancel()
        if ended:
            return sending.result()
        if not running.cancelled():
            running.result()
        msg = f"the publisher was closed before {item} was answered: it may be in the queue"
        raise StanzaqError(msg)

    async def publish_many(self, node: str, payloads: Iterable[Any] | AsyncIterable[Any]) -> list[str]:
        """Send many items, several at once and so in no order, and return their ids. Raises as `publish` does."""
        room = asyncio.Semaphore(_AT_ONCE)

        async def send(payload: Any) -> str:  # noqa: ANN401
            try:
                return await self.publish(node, payload)
            finally:
                room.release()

        tasks = []
        try:
            async with asyncio.TaskGroup() as group:
                async for payload in _each(payloads):
                    await room.acquire()
                    tasks.append(group.create_task(send(payload)))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in tasks]


async def _each(values: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterable[Any]:
    if isinstance(values, AsyncIterable):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value
