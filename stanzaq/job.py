"""The argument of a handler. Must not know where it came from."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, Unpack

from stanzaq.errors import StanzaqError
from stanzaq.retry import ALL_KINDS, Kinds
from stanzaq.transport.interface import Progress, SendOne, SendThen

if TYPE_CHECKING:
    from uuid import UUID

    # typing has defaults only from Python 3.13 on. Type checkers bring this module; it needs not be installed.
    from typing_extensions import TypeVar

    from stanzaq.fencing import Fence

    T = TypeVar("T", default=Any)
    P_contra = TypeVar("P_contra", contravariant=True)
else:
    from typing import TypeVar

    T, P_contra = TypeVar("T"), TypeVar("P_contra", contravariant=True)


class Sending(Protocol[P_contra]):
    """A task, as a job sees it."""

    def on(self, publisher: Any, /) -> "Sending[P_contra]":  # noqa: ANN401  (whatever publishes)
        """Return the task for sending with a publisher."""

    async def send(self, payload: P_contra, /, **how: Unpack[SendOne]) -> str:
        """Publish an item for the task."""


async def _do_nothing(_progress: Progress | None = None) -> None:
    """Do nothing: a copy in another process has no connection."""


_APART: Final = "a job in another process has no connection to publish over: use a stanzaq.Publisher there"


async def _refuse_to_publish(*_: object, **_more: object) -> str:
    """Refuse: a copy in another process has no connection."""
    raise StanzaqError(_APART)


def _refuse_to_note(*_: object, **_more: object) -> str:
    """Refuse: what a copy in another process notes would be lost with it."""
    raise StanzaqError(_APART)


def _refuse_settling(_fault: Exception | None, _result: Any) -> None:  # noqa: ANN401
    msg = "only a handler of batches, and none in another process, ends its jobs one by one: return, or raise Reject or Retry"
    raise RuntimeError(msg)


@dataclass(frozen=True, slots=True)
class Job(Generic[T]):
    """One item under one lock.

    `token` grows with every lock of the item: a store that refuses lower tokens than it has seen refuses late workers.
    `attempt` counts from 1, up to `max_attempts`; 0 is no limit. `published` is the time of the item's first publish.
    `deadline` is when the lock ends by the service's clock, unless it is renewed, which the worker does automatically. `state` is
    what the worker's lifespan yields; in another process it is None.
    """

    payload: T
    id: str
    node: str
    token: int
    attempt: int
    max_attempts: int
    headers: Mapping[str, str]
    key: str
    published: datetime
    deadline: datetime
    state: Any = None
    _renew: Callable[[Progress | None], Awaitable[None]] = field(default=_do_nothing, repr=False, compare=False)
    _begin: Callable[[], Awaitable[None]] = field(default=_do_nothing, repr=False, compare=False)
    """Called right before the handler."""
    _returned: list[Any] = field(default_factory=list, repr=False, compare=False)
    """What the handler has returned, once it has."""
    _publish: Callable[..., Awaitable[str]] = field(default=_refuse_to_publish, repr=False, compare=False)
    _note: Callable[..., str] = field(default=_refuse_to_note, repr=False, compare=False)
    """Notes an item that is published with the acknowledgement."""
    _kinds: Kinds = field(default=ALL_KINDS, repr=False, compare=False)
    """Which exceptions are followed by another attempt."""
    _settle: Callable[[Exception | None, Any], None] = field(default=_refuse_settling, repr=False, compare=False)

    def apart(self) -> Self:
        """Return a copy for another process, which has no connection, no state, and cannot renew the lock."""
        told = replace(self, state=None, _renew=_do_nothing, _begin=_do_nothing, _settle=_refuse_settling)
        return replace(told, _publish=_refuse_to_publish, _note=_refuse_to_note)

    def fence(self, connection: object, name: str, key: "str | int | UUID") -> "Fence":
        """Return what guards writes: `async with job.fence(connection, "orders", order_id):`, or `with` where it blocks.

        The store refuses them, as Fenced, if it has seen a larger token of this node for this name and key. Raises TypeError for
        a connection that no fence knows, and ValueError for a job without a token.
        """
        from stanzaq.fencing import Fence, Mark  # noqa: PLC0415  (most programs need none)

        return Fence(connection, Mark.make(self.node, name, key, self.token))

    def complete(self, result: Any = None) -> None:  # noqa: ANN401
        """Let this job of a batch be done, with its result, however the others end. It counts when the handler ends.

        The first call of `complete` or `fail` counts. Raises RuntimeError outside of a batch.
        """
        self._settle(None, result)

    def fail(self, fault: Exception) -> None:
        """Let this job of a batch fail as if it alone had raised this, e.g. a Reject or a Retry. It counts when the handler ends.

        Raises TypeError for what is no exception, and RuntimeError outside of a batch.
        """
        given: object = fault
        if not isinstance(given, Exception):
            msg = f"job.fail({given!r}): give an exception, such as Reject('why')"
            raise TypeError(msg)
        self._settle(fault, None)

    async def renew(self) -> None:
        """Restart the lock time now, e.g. before a step that blocks the event loop for long."""
        await self._renew(None)

    async def progress(self, share: float | None, note: str = "") -> None:
        """Tell how far the job is, a share from 0 to 1 and a note, which owners and publishers see; renews the lock as well.

        Raises ValueError for another share.
        """
        await self._renew(Progress(share, note))

    async def publish(self, node: str, payload: Any, **how: Unpack[SendOne]) -> str:  # noqa: ANN401
        """Publish an item over the worker's connection now, whatever becomes of this job, and return its id once it is stored.

        The arguments are those of `Publisher.publish`, without `reply`. The worker's account must be allowed to publish to the
        node. If the job is repeated, so is this: give an `id` that follows from the job's. A handler in a thread writes
        `asyncio.run(job.publish(…))`; in another process there is no connection. Raises as `Publisher.publish` does.
        """
        return await self._publish(node, payload, **how)

    async def send(self, task: Sending[P_contra], payload: P_contra, **how: Unpack[SendOne]) -> str:
        """Publish an item for a task as `publish` does, with the payload's type checked as by `Task.send`, and return its id."""
        return await task.on(self).send(payload, **how)

    def then(self, node: str, payload: Any, *, id: str | None = None, **how: Unpack[SendThen]) -> str:  # noqa: A002, ANN401
        """Note an item that is published if and only if this one is completed, in the same step, and return its id.

        Its delay and its time to live count from then. If the worker may not publish to the node, or that refuses the item, the
        job has failed, and nothing is published. At most 10 items, with payloads of together 262,144 bytes. Raises ValueError
        and TypeError for unsuitable arguments, and StanzaqError in another process.
        """
        for name in how.keys() - SendThen.__optional_keys__:
            msg = f"then() got an unexpected keyword argument {name!r}"
            raise TypeError(msg)
        return self._note(node, payload, id=id, **how)
