"""stanzaq's core without a door: one process publishes, one with credit for 50 acknowledges each item of one partition.

Like a door over HTTP the publisher sends nothing, or it would do the jobs that its publishes hand out. Both collect garbage as
seldom as frontends do.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

import jobs
import uvloop
from pydantic import SecretStr

from broker.model.commands import Declare, Publish, Retract, Subscribe, Unsubscribe
from broker.model.items.items import Delivery, Notice
from broker.model.names import Jid
from broker.redis_core.core import RedisCore
from broker.settings import NodeCreation, Settings
from frontends.garbage import collect_rarely

OWNER = Jid("bench@localhost/1")
NODE = "work"


class Worker:
    """An outlet whose handler does nothing."""

    def __init__(self) -> None:
        """Start without a core."""
        self.core: RedisCore

    def deliver(self, batch: Sequence[Delivery]) -> None:
        """Do jobs and acknowledge them."""
        for delivery in batch:
            jobs.end()
            done = Retract(NODE, OWNER, delivery.item_id, delivery.token, str(delivery.token))
            self.core.submit(done, lambda _: None)

    def notify(self, notice: Notice) -> None:
        """Ignore notices."""

    def congested(self) -> bool:
        """Return False: nothing waits here."""
        return False

    def flushed(self) -> bool:
        """Return True: everything is written at once."""
        return True


async def main() -> None:
    """Publish jobs, or work until SIGTERM."""
    settings = Settings(
        redis_url=os.environ["PEERS_REDIS"],
        xmpp_domain="queue.localhost",
        xmpp_secret=SecretStr("none"),
        node_creation=NodeCreation.ANYONE,
    )
    outlet, works = Worker(), sys.argv[1] == "work"
    core = outlet.core = RedisCore(settings, outlet if works else None)
    await core.start()
    await core.ask(Declare(NODE, OWNER, {}))
    if works:
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        await core.ask(Subscribe(NODE, OWNER, OWNER, jobs.UNDER_WAY))
        await ended.wait()
        await core.ask(Unsubscribe(NODE, OWNER, OWNER, ""))
    else:
        body = jobs.PAYLOAD.encode()
        await jobs.publish(int(sys.argv[2]), lambda _: core.ask(Publish(NODE, OWNER, None, body, len(body))))
    await core.drain(5)
    await core.stop()


collect_rarely()
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
