"""A publisher for programs without an event loop, such as Django and Flask: `stanzaq.Publisher` with blocking calls.

It runs the other one in its own thread. Must not know what it sends.
"""

import asyncio
import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as NotInTime
from functools import partial
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

from stanzaq.codec import Codec
from stanzaq.durations import Duration, seconds
from stanzaq.errors import StanzaqError
from stanzaq.publisher import flow, publisher, task
from stanzaq.publisher.connected import ConnectedPublisher
from stanzaq.publisher.publisher import When
from stanzaq.publisher.task import P, R
from stanzaq.queue import Create, Queue
from stanzaq.transport.account import Password, Tls
from stanzaq.transport.interface import Schedule, SendMany, SendOne

T = TypeVar("T")
W = TypeVar("W")


class Reply:
    """An item that was published with `reply=True`; any thread may wait for its end."""

    def __init__(
        self, reply: publisher.Reply, wait: Callable[[Coroutine[Any, Any, Any], Duration | None], Any]
    ) -> None:
        """Wait by `wait`, which runs what it is given where the item was published."""
        self.id = reply.id
        self._reply = reply
        self._wait = wait

    def result(self, timeout: Duration | None = None) -> Any:  # noqa: ANN401
        """Block until the item has ended; returns and raises as `Reply.result` does."""
        return self._wait(self._reply.result(), timeout)


class Publisher:
    """Sends items from any thread. The first publish in each process connects; `close`, or the end of a `with`, disconnects."""

    def __init__(  # noqa: PLR0913  (what users may say)
        self,
        url: str,
        *,
        service: str | None = None,
        password: Password = None,
        address: str | None = None,
        tls: Tls = "required",
        outbox: str | os.PathLike[str] | None = None,
        codec: Codec | None = None,
    ) -> None:
        """Check the arguments as a worker does; raises ValueError. Does not connect yet."""
        given: dict[str, Any] = {"service": service, "password": password, "address": address, "tls": tls}
        self._make = partial(publisher.Publisher, url, **given, outbox=outbox, codec=codec)
        self._begin()
        _publishers.add(self)

    def _begin(self) -> None:
        """Have no connection yet: when made, and in a forked process, where the parent's thread does not run."""
        self._publisher = self._make()
        self._opening = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._calls: set[Future[Any]] = set()

    @overload
    def publish(
        self,
        node: str,
        payload: Any,  # noqa: ANN401
        *,
        reply: Literal[False] = False,
        timeout: Duration | None = None,
        **how: Unpack[SendOne],
    ) -> str: ...

    @overload
    def publish(
        self,
        node: str,
        payload: Any,  # noqa: ANN401
        *,
        reply: Literal[True],
        timeout: Duration | None = None,
        **how: Unpack[SendOne],
    ) -> Reply: ...

    def publish(
        self, node: str, payload: Any, *, reply: bool = False, timeout: Duration | None = None, **how: Unpack[SendOne]
    ) -> str | Reply:
        """Send an item, and return its id once the service has stored it; with `reply` a `Reply`, which has the id.

        Raises TimeoutError after `timeout`: the item may be in the queue, so publish it again with the same `id`, or leave it to
        the outbox if there is one. The rest is as in `stanzaq.Publisher.publish`.
        """

        async def send() -> str | Reply:
            if not reply:
                return await self._publisher.publish(node, payload, **how)
            asked = await self._publisher.publish(node, payload, reply=True, **how)
            return Reply(asked, partial(self._wait, within=asyncio.get_running_loop()))

        return self._wait(send(), timeout)

    def cancel(self, node: str, id: str, *, timeout: Duration | None = None) -> bool:  # noqa: A002
        """Cancel an item, as `stanzaq.Publisher.cancel` does; returns False if there is none."""
        return self._wait(self._publisher.cancel(node, id), timeout)

    def publish_many(
        self, node: str, payloads: Iterable[Any], *, timeout: Duration | None = None, **how: Unpack[SendMany]
    ) -> list[str]:
        """Send many items, several at once and so in no order, and return their ids. Raises as `publish` does."""
        return self._wait(self._publisher.publish_many(node, payloads, **how), timeout)

    def declare(self, queue: Queue, *, create: Create = "if-missing", timeout: Duration | None = None) -> None:
        """Make a queue what is declared, as `stanzaq.Publisher.declare` does."""
        self._wait(self._publisher.declare(queue, create=create), timeout)

    def result(self, node: str, id: str, *, timeout: Duration | None = None) -> Any:  # noqa: A002, ANN401
        """Return what the handler of an item has returned, as `stanzaq.Publisher.result` does."""
        return self._wait(self._publisher.result(node, id), timeout)

    def schedule(
        self,
        node: str,
        id: str,  # noqa: A002
        payload: Any,  # noqa: ANN401
        *,
        timeout: Duration | None = None,
        **when: Unpack[When],
    ) -> Schedule:
        """Let an own node publish at certain times, by the arguments of `stanzaq.Publisher.schedule`."""
        return self._wait(self._publisher.schedule(node, id, payload, **when), timeout)

    def schedules(self, node: str, *, timeout: Duration | None = None) -> list[Schedule]:
        """Return the schedules of an own node, as `stanzaq.Publisher.schedules` does."""
        return self._wait(self._publisher.schedules(node), timeout)

    def pause_schedule(self, node: str, id: str, *, timeout: Duration | None = None) -> Schedule:  # noqa: A002
        """Pause a schedule, as `stanzaq.Publisher.pause_schedule` does."""
        return self._wait(self._publisher.pause_schedule(node, id), timeout)

    def resume_schedule(self, node: str, id: str, *, timeout: Duration | None = None) -> Schedule:  # noqa: A002
        """Resume a schedule, as `stanzaq.Publisher.resume_schedule` does."""
        return self._wait(self._publisher.resume_schedule(node, id), timeout)

    def unschedule(self, node: str, id: str, *, timeout: Duration | None = None) -> bool:  # noqa: A002
        """Delete a schedule, as `stanzaq.Publisher.unschedule` does."""
        return self._wait(self._publisher.unschedule(node, id), timeout)

    def affiliations(self, node: str, *, timeout: Duration | None = None) -> dict[str, str]:
        """Return who has which affiliation with an own node, as `stanzaq.Publisher.affiliations` does."""
        return self._wait(self._publisher.affiliations(node), timeout)

    def affiliate(self, node: str, changes: Mapping[str, str], *, timeout: Duration | None = None) -> None:
        """Change affiliations with an own node, all of them or none, as `stanzaq.Publisher.affiliate` does."""
        self._wait(self._publisher.affiliate(node, changes), timeout)

    def requests(self, node: str, *, timeout: Duration | None = None) -> list[str]:
        """Return who waits for an approval, as `stanzaq.Publisher.requests` does."""
        return self._wait(self._publisher.requests(node), timeout)

    def decide(self, node: str, jid: str, *, allow: bool, timeout: Duration | None = None) -> None:
        """Approve or refuse the requests of an account, as `stanzaq.Publisher.decide` does."""
        self._wait(self._publisher.decide(node, jid, allow=allow), timeout)

    def close(self) -> None:
        """Disconnect; the next publish connects again."""
        with self._opening:
            if self._loop is None or self._thread is None:
                return
            try:
                asyncio.run_coroutine_threadsafe(self._publisher.__aexit__(None, None, None), self._loop).result()
                # Without the loop they would never be answered.
                wait(tuple(self._calls))
            finally:
                self._stop(self._loop, self._thread)

    def __enter__(self) -> Self:
        """Return this publisher."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        self.close()

    def _open(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="stanzaq-publisher", daemon=True)
            self._thread.start()
            try:
                asyncio.run_coroutine_threadsafe(self._publisher.__aenter__(), self._loop).result()
            except BaseException:
                self._stop(self._loop, self._thread)
                raise
        return self._loop

    def _stop(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        self._loop = self._thread = None

    def _wait(
        self,
        sending: Coroutine[Any, Any, T],
        timeout: Duration | None,
        within: asyncio.AbstractEventLoop | None = None,
    ) -> T:
        """Wait for what runs in the thread; raises StanzaqError if it belongs `within` the loop of an earlier connection."""
        with self._opening:
            try:
                if within is not None and within is not self._loop:
                    msg = "the publisher was closed meanwhile"
                    raise StanzaqError(msg)  # noqa: TRY301
                patience = None if timeout is None else seconds(timeout)
                loop = self._open()
            except BaseException:
                sending.close()
                raise
            future = asyncio.run_coroutine_threadsafe(sending, loop)
            self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        try:
            return future.result(patience)
        except NotInTime:
            future.cancel()
            raise
        finally:
            # A fault refers to this frame, and the future to the fault.
            del future


class _Blocking(Generic[W]):
    """A task or a flow that sends over a blocking publisher; in the thread of a handler over the worker's connection."""

    def __init__(self, sent: W) -> None:
        """Send it, bound to nothing yet."""
        self._sent = sent
        self._publisher: Publisher | None = None

    def on(self, publisher: Publisher) -> Self:
        """Return the same for sending with a publisher."""
        bound = type(self)(self._sent)
        bound._publisher = publisher  # noqa: SLF001  (its own)
        return bound

    def _wait(self, send: Callable[[W], Coroutine[Any, Any, T]], timeout: Duration | None) -> T:
        """Wait for what is sent; raises StanzaqError if there is no connection that may be waited for here."""
        sent: Any = self._sent
        if self._publisher is not None:
            # The same module's, and below the same package's.
            return self._publisher._wait(send(sent.on(self._publisher._publisher)), timeout)  # noqa: SLF001
        found = sent._publisher()  # noqa: SLF001
        if not isinstance(found, ConnectedPublisher):
            msg = f"{sent} is bound to a publisher that does not block: bind this one, with on(publisher)"
            raise StanzaqError(msg)
        if asyncio._get_running_loop() is found.loop:  # noqa: SLF001
            msg = f"{sent}: this would block the worker's own event loop: await stanzaq.{type(self).__name__} there"
            raise StanzaqError(msg)
        patience = None if timeout is None else seconds(timeout)
        future = asyncio.run_coroutine_threadsafe(send(sent.on(found)), found.loop)
        try:
            return future.result(patience)
        except NotInTime:
            future.cancel()
            raise
        finally:
            del future


class Task(_Blocking[task.Task[P, R]], Generic[P, R]):
    """A `stanzaq.Task` for blocking calls: `Task(thumbnail).on(publisher).send(picture)`.

    In the thread of a handler it needs no publisher: it sends over the worker's connection.
    """

    def send(self, payload: P, *, timeout: Duration | None = None, **how: Unpack[SendOne]) -> str:
        """Publish an item for the task and return its id, as `stanzaq.Task.send` does; raises TimeoutError after `timeout`."""
        return self._wait(lambda bound: bound.send(payload, **how), timeout)

    def send_many(
        self, payloads: Iterable[P], *, timeout: Duration | None = None, **how: Unpack[SendMany]
    ) -> list[str]:
        """Publish many items for the task, in no order, and return their ids."""
        return self._wait(lambda bound: bound.send_many(payloads, **how), timeout)

    def call(self, payload: P, *, timeout: Duration | None = None, **how: Unpack[SendOne]) -> R:
        """Publish an item for the task and return what its handler returned, as `stanzaq.Task.call` does."""
        return self._wait(lambda bound: bound.call(payload, **how), timeout)


class Flow(_Blocking[flow.Flow[R]], Generic[R]):
    """A `stanzaq.Flow` for blocking calls: `Flow(chain(resize.item(picture), frame)).on(publisher).call()`.

    In the thread of a handler it needs no publisher.
    """

    def send(self, *, timeout: Duration | None = None) -> list[str]:
        """Publish all items and return the ids of the last ones; raises TimeoutError after `timeout`."""
        return self._wait(lambda bound: bound.send(), timeout)

    def call(self, *, timeout: Duration | None = None) -> R:
        """Publish all items and return what the last one's handler returned, as `stanzaq.Flow.call` does."""
        return self._wait(lambda bound: bound.call(), timeout)


_publishers: weakref.WeakSet[Publisher] = weakref.WeakSet()


def _leave_after_fork() -> None:
    for each in _publishers:
        # Never freed here: its connections are the parent's, and closing them would change what the parent's event loop watches.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each._publisher))  # noqa: SLF001
        each._begin()  # noqa: SLF001


os.register_at_fork(after_in_child=_leave_after_fork)
