"""Parts of the hostile network test: frontends that die at a chosen exchange with Redis, and a sender that never gives up.

A frontend is the real door over the real core; only its stream is the test's. Must not know the order of events: the
state machine chooses it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final
from xml.etree import ElementTree as ET

from broker.redis_core.core import RedisCore
from broker.settings import Settings
from frontends.xmpp import namespaces as ns
from frontends.xmpp.component import Component
from tests.admitting import ADMITTING

SERVICE: Final = "queue.localhost"
SENDER: Final = "sender@localhost/box"


class Frontend:
    """One frontend; it dies at its `fuse`-th exchange with Redis from now, before or after that exchange."""

    def __init__(self, url: str, write: Callable[[bytes], None]) -> None:
        """Run over the Redis at `url` and write to `write` while it lives; must be made in the loop."""
        self.fuse = -1
        self.before = False
        self.alive = True
        self.component = Component(domain=SERVICE, secret="s", host="127.0.0.1", port=1)
        settings = {"redis_url": url, "xmpp_domain": SERVICE, "xmpp_secret": "s", "qos_source_messages": 1000}
        self.core = RedisCore(Settings(**ADMITTING, **settings), self.component)  # type: ignore[arg-type]
        self.component._core = self.core
        self.component._stream.write = lambda data: write(data) if self.alive else None  # type: ignore[method-assign]
        self._exchange = self.core._server._limit_wait
        self.core._server._limit_wait = self._within_patience  # type: ignore[method-assign]

    async def _within_patience(self, work: Any, **how: bool) -> Any:  # noqa: ANN401  (redis-py's)
        self.fuse -= 1
        if self.fuse == 0 and self.before:
            self.alive = False
        if not self.alive:
            work.close()
            await asyncio.Event().wait()
        reply = await self._exchange(work, **how)
        if self.fuse == 0:
            self.alive = False
            await asyncio.Event().wait()
        return reply

    def receive(self, stanza: bytes) -> None:
        """Receive a stanza from the network; a dead frontend receives nothing."""
        if self.alive:
            self.component.receive(ET.fromstring(stanza), None)

    @property
    def quiet(self) -> bool:
        """Return whether nothing is under way; in a dead frontend nothing ever is."""
        core = self.core
        return not self.alive or (not core._tasks and all(routes.quiet for routes in core._routers.values()))

    async def end(self) -> None:
        """Close everything."""
        self.alive = False
        running = [pipeline._running for pipeline in self.core.pipelines() if pipeline._running is not None]
        tasks = [*self.core._tasks, *running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.core._server.close()


class Level(Enum):
    """The guarantee for a message."""

    PLAIN = "plain"
    ACKNOWLEDGED = "acknowledged"
    ASSURED = "assured"


@dataclass
class Message:
    """A message of the sender; `step` is what it waits for: acknowledged, assured, deliver, then done or failed."""

    number: int
    level: Level
    node: str
    msg_id: str
    step: str = ""
    copies: int = 0

    def __post_init__(self) -> None:
        """Begin with the level's first step."""
        self.step = self.level.value

    @property
    def over(self) -> bool:
        """Return whether nothing is to be repeated."""
        return self.step in {"done", "failed"} or self.level is Level.PLAIN

    def stanza(self) -> bytes:
        """Write the present step: each repeat is the same."""
        head = f"xmlns='{ns.COMPONENT}' id='{self.number}-{self.step}' from='{SENDER}' to='{self.node}@{SERVICE}'"
        inside = f"<job xmlns='urn:x' n='{self.number}'/>"
        if self.level is Level.PLAIN:
            return f"<message {head}>{inside}</message>".encode()
        if self.step == "deliver":
            asked = f"<deliver xmlns='{ns.QOS}' msgId='{self.msg_id}'/>"
        else:
            named = f" msgId='{self.msg_id}'" if self.step == "assured" else ""
            message = f"<message xmlns='{ns.CLIENT}' id='{self.number}'>{inside}</message>"
            asked = f"<{self.step} xmlns='{ns.QOS}'{named}>{message}</{self.step}>"
        return f"<iq {head} type='set'>{asked}</iq>".encode()

    def hear(self, step: str, reply: ET.Element) -> None:
        """Take a reply. One to an earlier step, or one that says to wait, changes nothing."""
        if step != self.step or self.over:
            return
        error = reply.find("error")
        if error is None:
            if step == "assured":
                received = [child for child in reply if child.tag.rpartition("}")[2] == "received"]
                assert [child.get("msgId") for child in received] == [self.msg_id]
            self.step = "deliver" if step == "assured" else "done"
        elif error.get("type") != "wait":
            # SX8: a message that the service does not know is sent to it again.
            unknown = step == "deliver" and error[0].tag == f"{{{ns.STANZAS}}}item-not-found"
            self.step = "assured" if unknown else "failed"


@dataclass
class Network:
    """Stanzas under way in both directions, and all that ever reached the service."""

    to_service: list[bytes] = field(default_factory=list)
    to_sender: list[bytes] = field(default_factory=list)
    brought: list[bytes] = field(default_factory=list)
