"""Adds partitions to a queue at work, by a core of its own, as a shell command does."""

import asyncio

from broker.model.commands import Configure
from broker.model.names import Jid
from broker.model.nodes import Affiliation
from broker.model.results import Refused
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from tests.admitting import ADMITTING

_PAUSE_SECONDS = 0.05


def grow(url: str, queue: str, more: int) -> None:
    """Add partitions to a queue, as one of its owners."""
    asyncio.run(_grown(url, queue, more))


async def _grown(url: str, queue: str, more: int) -> None:
    core = RedisCore(CommandSettings(**ADMITTING, redis_url=url), None)
    try:
        record = await core._store.read(queue)
        assert record is not None
        owner = next(jid for jid, role in record.affiliations.items() if role is Affiliation.OWNER)
        asked = Configure(queue, Jid(owner), {"stanzaq#partitions": (str(record.config.partitions + more),)})
        while isinstance(outcome := await core.ask(asked), Refused):
            assert outcome.problem.retryable, outcome
            await asyncio.sleep(_PAUSE_SECONDS)
    finally:
        await core.stop()
