"""The fence around a job's writes: finds what guards a connection; a test may stop a job there. Must not know any store."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import ContextVar
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Protocol

from stanzaq.fencing.mark import Mark

Guard = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]

_GUARDS: Final = {
    ("aiobotocore", "AioBaseClient"): "s3.guard_async",
    ("asyncpg", "Connection"): "postgresql.guard_asyncpg",
    ("asyncpg", "PoolConnectionProxy"): "postgresql.guard_asyncpg",
    ("botocore", "BaseClient"): "s3.guard",
    ("django", "BaseDatabaseWrapper"): "postgresql.guard_django",
    ("django", "ConnectionProxy"): "postgresql.guard_django",
    ("psycopg", "AsyncConnection"): "postgresql.guard_async_psycopg",
    ("psycopg", "Connection"): "postgresql.guard_psycopg",
    ("redis", "Pipeline"): "",
    ("redis", "Redis"): "redis.guard",
    ("sqlalchemy", "AsyncConnection"): "postgresql.guard_async_sqlalchemy",
    ("sqlalchemy", "AsyncSession"): "postgresql.guard_async_sqlalchemy",
    ("sqlalchemy", "Connection"): "postgresql.guard_sqlalchemy",
    ("sqlalchemy", "Session"): "postgresql.guard_sqlalchemy",
}
"""The module and function for each package and class of connections; a Pipeline is a Redis too, but answers nothing."""


class Stop(Protocol):
    """Where a test stops a job: right before the store checks its token."""

    def block(self) -> None:
        """Block this thread."""

    async def wait(self) -> None:
        """Wait in the event loop."""


stop: ContextVar[Stop | None] = ContextVar("stanzaq_fence_stop", default=None)
"""How a test stops the job that runs here."""


class Fence:
    """Guards a block of writes: `async with job.fence(…):`, or `with` where the connection blocks."""

    def __init__(self, connection: object, mark: Mark) -> None:
        """Choose what guards a connection. Raises TypeError for an unknown one."""
        self._guard = _choose(connection)(connection, mark)

    def __enter__(self) -> Any:  # noqa: ANN401  (the connection, or what queues the writes)
        """Check the token. Raises Fenced if the store has seen a larger one."""
        if not isinstance(self._guard, AbstractContextManager):
            msg = "the connection is asynchronous: write `async with job.fence(…)`"
            raise TypeError(msg)
        if place := stop.get():
            place.block()
        return self._guard.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Write, unless the block has failed."""
        assert isinstance(self._guard, AbstractContextManager)
        return self._guard.__exit__(kind, error, trace)

    async def __aenter__(self) -> Any:  # noqa: ANN401
        """Check the token. Raises Fenced if the store has seen a larger one."""
        if not isinstance(self._guard, AbstractAsyncContextManager):
            msg = "the connection blocks: write `with job.fence(…)`, in a handler that is a plain function"
            raise TypeError(msg)
        if place := stop.get():
            await place.wait()
        return await self._guard.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Write, unless the block has failed."""
        assert isinstance(self._guard, AbstractAsyncContextManager)
        return await self._guard.__aexit__(kind, error, trace)


def _choose(connection: object) -> Callable[[object, Mark], Guard]:
    """Return the function that guards connections of this type. Raises TypeError."""
    for kind in type(connection).__mro__:
        found = _GUARDS.get((kind.__module__.partition(".")[0], kind.__name__))
        if found is not None:
            module, _, function = found.partition(".")
            if found:
                guard: Callable[[object, Mark], Guard] = getattr(import_module(f"stanzaq.fencing.{module}"), function)
                return guard
            break
    kind = type(connection)
    msg = (
        f"no fence knows a {kind.__module__}.{kind.__qualname__}: give a connection of psycopg, asyncpg, Django or SQLAlchemy,"
        " or a client of redis-py, boto3 or aiobotocore"
    )
    raise TypeError(msg)
