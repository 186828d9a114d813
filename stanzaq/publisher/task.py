"""A task: work on items of one queue that has a name and types, whoever does it. Must not know any handler, nor any transport."""

from collections.abc import AsyncIterable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Unpack, get_args

from stanzaq import payloads
from stanzaq.durations import Duration
from stanzaq.errors import StanzaqError
from stanzaq.publisher.connected import current
from stanzaq.publisher.flow import Flow, describe
from stanzaq.publisher.publisher import Reply, When
from stanzaq.queue import Queue
from stanzaq.transport.interface import TASK, Content, SendMany, SendOne, SendThen

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    P = TypeVar("P", default=Any)
    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    P, R = TypeVar("P"), TypeVar("R")

_UNTYPED: Final = (Any, Any)


class Publishing(Protocol):
    """What a task may be bound to: a publisher, or a broker under test."""

    @property
    def publish(self) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Publish an item."""

    @property
    def publish_many(self) -> Callable[..., Coroutine[Any, Any, list[str]]]:
        """Publish many items."""


class Task(Generic[P, R]):
    """Items of a queue with a payload of the type P, whose handler returns an R: `Task[Picture, Size]("thumbnails")`.

    Several tasks share a queue if each has a `name` of its own. In a worker's process a task sends over the worker's connection,
    elsewhere over the publisher that it is `on`.
    """

    def __init__(self, queue: Queue | str, name: str = "") -> None:
        """Declare a task of a queue, or of a node by its name; the worker with its handler may be another program.

        Raises TypeError.
        """
        self.queue = queue if isinstance(queue, Queue) else Queue(queue)
        self.node = self.queue.name
        self.name = name
        self._types: tuple[Any, ...] = ()
        self._how: SendThen = {}
        self._find: Callable[[], Publishing | None] | None = None

    def on(self, publisher: Publishing) -> "Task[P, R]":
        """Return this task for sending with a publisher."""
        return self._change(lambda: publisher, self._how)

    def using(self, **how: Unpack[SendThen]) -> "Task[P, R]":
        """Return this task for sending with these arguments of `Publisher.publish` where no others are given."""
        return self._change(self._find, {**self._how, **how})

    def _change(self, find: Callable[[], Publishing | None] | None, how: SendThen) -> "Task[P, R]":
        changed: Task[P, R] = Task(self.queue, self.name)
        changed._types, changed._find, changed._how = self._find_types(), find, how
        return changed

    async def send(self, payload: P, **how: Unpack[SendOne]) -> str:
        """Publish an item for the task, with the arguments of `Publisher.publish`, and return its id.

        Raises TypeError or ValueError if a handler would not accept the payload, and StanzaqError as `Publisher.publish` does.
        """
        item: str = await self._post(self._write(payload), how)
        return item

    async def send_many(self, payloads: Iterable[P] | AsyncIterable[P], **how: Unpack[SendMany]) -> list[str]:
        """Publish many items for the task, several at once and so in no order, and return their ids. Raises as `send` does."""
        written = self._write_each(payloads)
        return await self._publisher().publish_many(self.node, written, **self._name_in(how))

    async def call(self, payload: P, *, timeout: Duration | None = None, **how: Unpack[SendOne]) -> R:  # noqa: ASYNC109
        """Publish an item for the task, wait until it has ended, and return what its handler returned.

        Raises as `send` and `Reply.result` do, and StanzaqError if the result is not of the task's type.
        """
        return await self._read(await self._post(self._write(payload), {**how, "reply": True}), timeout)

    def item(self, payload: P, **how: Unpack[SendOne]) -> Flow[R]:
        """Describe an item for the task, to be sent alone, in a `group` or at the beginning of a `chain`. Raises as `send`."""
        return describe(self, self._write(payload), {**how})

    async def _post(self, content: Content, how: Any) -> Any:  # noqa: ANN401
        """Publish an item for the task, and return its id, or the `Reply` that was asked for."""
        return await self._publisher().publish(self.node, content, **self._name_in(how))

    async def _read(self, reply: Reply, timeout: Duration | None) -> R:  # noqa: ASYNC109
        """Wait for a result; raises StanzaqError if it is not of the task's type."""
        content = await reply.content(timeout)
        try:
            result: R = None if content is None else payloads.decode(content, self._find_types()[1])  # type: ignore[assignment]
        except payloads.Unfit as error:
            # An `Unfit` would be taken for that of the job that calls.
            msg = f"{self}: the result of {reply.id} is not what the task declares: {error}"
            raise StanzaqError(msg, "not-acceptable") from error
        return result

    def _publisher(self) -> Publishing:
        """Return what to send with; raises StanzaqError if there is nothing."""
        found = (self._find and self._find()) or current.get()
        if found is None:
            msg = f"{self} has no connection here, where no worker runs: bind it to a publisher with on(publisher)"
            raise StanzaqError(msg)
        return found

    def _find_types(self) -> tuple[Any, ...]:
        """Return the types of the payload and of the result, which Python notes after `__init__`."""
        self._types = self._types or get_args(getattr(self, "__orig_class__", None)) or _UNTYPED
        return self._types

    def scheduled(self, payload: Any, **when: Unpack[When]) -> tuple[Content, When]:  # noqa: ANN401
        """Return what a schedule publishes for the task, and when; raises TypeError or ValueError as `send` does."""
        return self._write(payload), self._name_in(when)

    def _write(self, payload: P) -> Content:
        """Write a payload; raises TypeError or ValueError if a handler would not accept it."""
        content = payloads.encode(payload)
        try:
            payloads.decode(content, self._find_types()[0])
        except payloads.Unfit as error:
            msg = f"{self}: {error}"
            raise TypeError(msg) from error
        return content

    async def _write_each(self, payloads: Iterable[P] | AsyncIterable[P]) -> AsyncIterable[Content]:
        if isinstance(payloads, AsyncIterable):
            async for payload in payloads:
                yield self._write(payload)
        else:
            for payload in payloads:
                yield self._write(payload)

    def _name_in(self, how: Any) -> Any:  # noqa: ANN401  (a TypedDict)
        """Return how an item is sent, with what the task itself says, and its name."""
        named = {TASK: self.name} if self.name else {}
        headers = {**(self._how.get("headers") or {}), **(how.get("headers") or {}), **named}
        return {**self._how, **how, "headers": headers}

    def __repr__(self) -> str:
        """Return what the task is called."""
        return f"{self.node} ({self.name})" if self.name else self.node
