"""Changes the record of a queue at work, by a core of its own, as a shell command does."""

import asyncio

from broker.model.commands import Configure
from broker.model.names import Jid
from broker.model.nodes.nodes import Affiliation
from broker.model.results import Refused
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from tests.admitting import ADMITTING

_PAUSE_SECONDS = 0.05


def retitle(url: str, queue: str, title: str) -> None:
    """Give a queue a title, as one of its owners."""
    asyncio.run(_retitle(url, queue, title))


async def _retitle(url: str, queue: str, title: str) -> None:
    core = RedisCore(CommandSettings(**ADMITTING, redis_url=url), None)
    try:
        record = await core._store.read(queue)
        assert record is not None
        owner = next(jid for jid, role in record.affiliations.items() if role is Affiliation.OWNER)
        asked = Configure(queue, Jid(owner), {"pubsub#title": (title,)})
        while isinstance(outcome := await core.ask(asked), Refused):
            assert outcome.problem.retryable, outcome
            await asyncio.sleep(_PAUSE_SECONDS)
    finally:
        await core.stop()
