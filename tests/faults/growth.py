"""How a queue is given more partitions while it is at work: by a core of its own, as a command of the shell does it."""

import asyncio

from broker.model.commands import Configure
from broker.model.names import Jid
from broker.model.nodes import Affiliation
from broker.model.results import Refused
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings

_PAUSE_SECONDS = 0.05


def grow(url: str, queue: str, more: int) -> None:
    """Give a queue so many partitions more, in the name of one of its owners."""
    asyncio.run(_grown(url, queue, more))


async def _grown(url: str, queue: str, more: int) -> None:
    core = RedisCore(CommandSettings(redis_url=url), None)
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
