"""Flows: items that are described before they are sent, some of which wait for others and get their results.

The service lets them wait; what becomes of the results is in `stanzaq.worker.passed`. Must not know any transport.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, overload

from stanzaq.durations import Duration, seconds
from stanzaq.transport.interface import PASSED, PASSED_ALL, PASSED_ONE, Content

if TYPE_CHECKING:
    from stanzaq.publisher.task import Publishing, Task

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
R = TypeVar("R")

_MOST: Final = 100
"""The most items that one item waits for."""

_NOTHING: Final = Content(b"null", "application/json")
"""The payload of an item that gets the results of others."""


class Flow(Generic[R]):
    """Items that are sent together; the last of them returns an R, or a group's items a list."""

    def __init__(self, parts: "tuple[_Part, ...]", *, many: bool = False) -> None:
        """Be made by `Task.item`, `group` and `chain`."""
        self._parts = parts
        self._many = many
        self._bound: Publishing | None = None

    def on(self, publisher: "Publishing") -> Self:
        """Return this flow for sending with a publisher."""
        bound = type(self)(self._parts, many=self._many)
        bound._bound = publisher  # noqa: SLF001  (its own)
        return bound

    def _publisher(self) -> "Publishing":
        """Return what to send with; raises StanzaqError if there is nothing."""
        return self._bound or self._parts[0].task._publisher()  # noqa: SLF001  (the same package's)

    def __repr__(self) -> str:
        """Return what the task of the last item is called, or of a group's first."""
        return repr(self._parts[0].task)

    async def send(self) -> list[str]:
        """Publish all items, each after those that it waits for, and return the ids of the last ones. Raises as `Task.send`."""
        ends = await self._begin({})
        return [end.id for end in ends]

    async def call(self, *, timeout: Duration | None = None) -> R:  # noqa: ASYNC109
        """Publish all items, wait until the last one has ended, and return what its handler returned; of a group, a list.

        Raises as `Task.call`: if an item that others wait for is not completed, these are `dead`.
        """
        async with asyncio.timeout(None if timeout is None else seconds(timeout)):
            ends = await self._begin({"reply": True})
            results: list[Any] = await asyncio.gather(*(end.read() for end in ends))
        found: Any = results if self._many else results[0]
        result: R = found
        return result

    async def _begin(self, how: dict[str, Any]) -> "list[_End]":
        return await asyncio.gather(*(part.begin(self._bound, how) for part in self._parts))


class _End:
    """An item that was sent: where it is, and what waits for its result if somebody asked for it."""

    def __init__(self, node: str, id: str, read: Callable[[], Awaitable[Any]]) -> None:  # noqa: A002
        self.node = node
        self.id = id
        self.read = read


class _Part:
    """One item, and the parts that it waits for."""

    def __init__(
        self, task: "Task[Any, Any]", content: Content, how: dict[str, Any], after: "tuple[_Part, ...]" = ()
    ) -> None:
        self.task = task
        self._content = content
        self._how = how
        self._after = after

    async def begin(self, publisher: "Publishing | None", how: dict[str, Any]) -> _End:
        """Publish the items that this one waits for, so that their ends are kept, and then this one."""
        parents = await asyncio.gather(*(part.begin(publisher, {"keep": True}) for part in self._after))
        asked = {**self._how, **how}
        if parents:
            # The same one if the flow is sent again.
            asked |= {"id": f"{parents[0].id}/{self.task.name or self.task.node}"}
            asked |= {"after": [(parent.node, parent.id) for parent in parents]}
        task = self.task if publisher is None else self.task.on(publisher)
        answer = await task._post(self._content, asked)  # noqa: SLF001  (the same package's)
        return _End(task.node, answer if isinstance(answer, str) else answer.id, lambda: task._read(answer, None))  # noqa: SLF001


def describe(task: "Task[Any, R]", content: Content, how: dict[str, Any]) -> Flow[R]:
    """Describe one item."""
    return Flow((_Part(task, content, how),))


def group(*flows: Flow[R]) -> Flow[list[R]]:
    """Let items run beside one another: `group(*map(resize.item, pictures))`. Raises ValueError for none, and for a group."""
    if not flows or any(flow._many for flow in flows):  # noqa: SLF001  (the same module's, here and below)
        msg = "group() takes items and chains, at least one, and no groups: give their items to one group"
        raise ValueError(msg)
    return Flow(tuple(part for flow in flows for part in flow._parts), many=True)  # noqa: SLF001


@overload
def chain(first: Flow[A], second: "Task[A, B]", /) -> Flow[B]: ...
@overload
def chain(first: Flow[A], second: "Task[A, B]", third: "Task[B, C]", /) -> Flow[C]: ...
@overload
def chain(first: Flow[A], second: "Task[A, B]", third: "Task[B, C]", fourth: "Task[C, D]", /) -> Flow[D]: ...


def chain(first: Flow[Any], *tasks: "Task[Any, Any]") -> Flow[Any]:
    """Let each task get the result of the one before as its payload: `chain(resize.item(picture), frame, upload)`.

    The task after a group gets the list of its results. A task may say how it is sent: `upload.using(priority=7)`. Raises
    ValueError for a group of more than 100.
    """
    flow = first
    for task in tasks:
        if len(flow._parts) > _MOST:  # noqa: SLF001
            msg = f"{task} would wait for {len(flow._parts)} items: a group in a chain has at most {_MOST}"  # noqa: SLF001
            raise ValueError(msg)
        passed = PASSED_ALL if flow._many else PASSED_ONE  # noqa: SLF001
        flow = Flow((_Part(task, _NOTHING, {"headers": {PASSED: passed}}, flow._parts),))  # noqa: SLF001
    return flow
