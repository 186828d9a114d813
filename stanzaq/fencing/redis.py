"""Fences in Redis, over redis-py. Knows the key of a fence; must not know what is written.

First the fence's key is raised to the token, and from then on a smaller token is refused. The writes are one transaction that
watches this key, so they are refused if a larger token has come meanwhile.
"""

import inspect
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, Final
from urllib.parse import quote

from redis.exceptions import WatchError

from stanzaq.fencing.mark import Mark

_LASTS_SECONDS: Final = 604_800
"""How long a key is kept after the last larger token: a week."""

_RAISE: Final = f"""\
local seen = tonumber(redis.call('GET', KEYS[1]) or 0)
if seen < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1], 'EX', {_LASTS_SECONDS}) end
"""
"""Raises a key to a token. One that is there already is left alone: whoever watches it under the same token may go on."""


def guard(client: Any, mark: Mark) -> AbstractContextManager[Any] | AbstractAsyncContextManager[Any]:  # noqa: ANN401
    """Guard writes that the block queues in a pipeline."""
    return _wait(client, mark) if inspect.iscoroutinefunction(client.execute_command) else _block(client, mark)


@contextmanager
def _block(client: Any, mark: Mark) -> Iterator[Any]:  # noqa: ANN401
    key = _key(mark)
    client.eval(_RAISE, 1, key, mark.token)
    with client.pipeline() as pipeline:
        pipeline.watch(key)
        _check(pipeline.get(key), mark)
        pipeline.multi()
        with _refused(mark):
            yield pipeline
            _check_watched(pipeline)
            pipeline.execute()


@asynccontextmanager
async def _wait(client: Any, mark: Mark) -> AsyncIterator[Any]:  # noqa: ANN401
    key = _key(mark)
    await client.eval(_RAISE, 1, key, mark.token)
    async with client.pipeline() as pipeline:
        await pipeline.watch(key)
        _check(await pipeline.get(key), mark)
        pipeline.multi()
        with _refused(mark):
            yield pipeline
            _check_watched(pipeline)
            await pipeline.execute()


def _key(mark: Mark) -> str:
    return ":".join(("stanzaq", "fence", *(quote(part, safe="") for part in (mark.node, mark.name, mark.key))))


def _check(seen: bytes | str | None, mark: Mark) -> None:
    """Raise Fenced unless the token is the last one seen."""
    if int(seen or 0) != mark.token:
        raise mark.refusal()


def _check_watched(pipeline: Any) -> None:  # noqa: ANN401
    """Raise RuntimeError for commands that nothing guards any more."""
    if pipeline.command_stack and not pipeline.watching:
        msg = "commands follow an execute() in the block of a fence: one execute() there must be the last"
        raise RuntimeError(msg)


@contextmanager
def _refused(mark: Mark) -> Iterator[None]:
    try:
        yield
    except WatchError as error:
        raise mark.refusal() from error
