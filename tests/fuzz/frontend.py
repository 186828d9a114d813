"""A whole frontend in the test's loop: a stream over a socket, the door, the core, a Redis. Judges its output.

Whatever a server sends, `exchange` asserts three things: each request is answered exactly once and nothing else is;
nothing raised anywhere; a valid request that follows is answered. It also measures the longest time for which one turn
kept the loop.
"""

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from xml.etree.ElementTree import Element

from structlog.testing import capture_logs

from broker.model.names import prepare_jid
from broker.redis_core.core import RedisCore
from broker.settings import Settings
from frontends.xmpp.component import Component
from tests.admitting import ADMITTING
from tests.fuzz.oracle import Request, told
from tests.fuzz.server import Server
from tests.waiting import PATIENCE_SECONDS

DOMAIN: Final = "workflows.shakespeare.lit"
ADMIN: Final = "admin@shakespeare.lit"
_LOOK_SECONDS: Final = 0.0005
_IQ: Final = "{jabber:component:accept}iq"
_ERROR: Final = "{jabber:component:accept}error"
_OURS: Final = "{urn:ietf:params:xml:ns:xmpp-stanzas}internal-server-error"
_SAID: Final = {
    "the XMPP server sent unreadable XML: reconnecting",
    "the XMPP server closed the stream",
}
"""Errors that a frontend may report of its server when their stream ends."""
_FENCE: Final = (
    "<iq type='get' id='{}' from='fence.example.org' to='workflows.shakespeare.lit'>"
    "<query xmlns='http://jabber.org/protocol/disco#info'/></iq>"
)


class Frontend:
    """One frontend and the server that it is connected to."""

    def __init__(self, redis_url: str) -> None:
        """Prepare; `start` begins. Must run inside the event loop."""
        self.server = Server()
        self.worst_seconds = 0.0
        given = ADMITTING | {"redis_url": redis_url, "xmpp_domain": DOMAIN, "xmpp_secret": "s", "admins": (ADMIN,)}
        self._settings = Settings(**given)
        self._fences = 0
        self._raised: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self._raised.append(context))

    async def start(self) -> None:
        """Connect, as `frontends.compose` does."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: self.server, "127.0.0.1", 0)
        port = self._listener.sockets[0].getsockname()[1]
        self.component = Component(domain=DOMAIN, secret="s", host="127.0.0.1", port=port)
        self.core = RedisCore(self._settings, self.component)
        await self.core.start()
        self.component.start(self.core, self.core.on_stream_state)
        await self.server.up.wait()

    async def stop(self) -> None:
        """End all of it."""
        await self.component.drain(1)
        await self.core.stop()
        self._listener.close()

    async def exchange(self, data: bytes) -> list[Element]:
        """Send bytes, judge the effects, and return all that was received."""
        story = told(data)
        self.worst_seconds = 0.0
        with capture_logs() as logs, self._watched():
            async with asyncio.timeout(PATIENCE_SECONDS):
                self.server.send(data)
                if not story.whole:
                    if story.well_formed:
                        # It waits for the rest, as it should.
                        self.server.hang_up()
                    await self.server.down.wait()
                    await self.server.up.wait()
                await self._settled()
        heard, self.server.heard = self.server.heard, []
        assert not self.server.faults
        _judge_answers(heard, _prepared(story.owed), _prepared(story.doubtful), whole=story.whole)
        assert not self._raised
        assert not self.component._waiting_of, "a sender is not forgotten"
        errors = [entry for entry in logs if entry["log_level"] == "error"]
        assert [entry for entry in errors if story.whole or entry["event"] not in _SAID] == []
        return heard

    async def _settled(self) -> None:
        """Wait until nothing is under way: input before a fence is read, and its effects are done and written."""
        await self._fence()
        while self.component._waiting or not self.core._is_idle():  # noqa: ASYNC110  (the core has no event for it)
            await asyncio.sleep(_LOOK_SECONDS)
        await self._fence()

    async def _fence(self) -> None:
        self._fences += 1
        name = f"fence-{self._fences}"
        self.server.send(_FENCE.format(name).encode())
        await self.server.answered(name)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Measure each turn of the loop in the thread's own time, so that none looks slow on a busy machine."""
        run = asyncio.Handle._run

        def measured(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            self.worst_seconds = max(self.worst_seconds, time.thread_time() - began)

        asyncio.Handle._run = measured  # type: ignore[assignment,method-assign]
        # A garbage collection examines all objects of the tests, which are not the frontend's.
        gc.disable()
        try:
            yield
        finally:
            gc.enable()
            asyncio.Handle._run = run  # type: ignore[method-assign]


def _prepared(requests: Counter[Request]) -> Counter[Request]:
    """Return the answers to expect: servers stamp prepared JIDs, and an answer to another form goes to the prepared one."""
    expected: Counter[Request] = Counter()
    for (sender, name), times in requests.items():
        expected[prepare_jid(sender), name] += times
    return expected


def _judge_answers(heard: list[Element], owed: Counter[Request], doubtful: Counter[Request], *, whole: bool) -> None:
    answers = [element for element in heard if element.tag == _IQ]
    given = Counter((answer.get("to", ""), answer.get("id", "")) for answer in answers)
    assert given <= owed + doubtful, f"nobody asked for {given - owed - doubtful}"
    if whole:
        assert owed <= given, f"unanswered: {owed - given}"
    for answer in answers:
        assert answer.get("type") in {"result", "error"}
        assert (answer.find(_ERROR) is not None) == (answer.get("type") == "error")
        assert answer.find(f"{_ERROR}/{_OURS}") is None, "a defect of ours"
