"""Ceilings for the Python calls and round trips of one request, so that a longer path is noticed."""

import asyncio
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Self

import httpx
import pytest
from proton import Message
from proton.utils import BlockingConnection

from broker.model.commands import Declare
from broker.model.names import Jid
from broker.model.results import Declared
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import heartbeat
from broker.redis_core.redis_client.client import Server
from broker.settings import Settings
from frontends.amqp.auth.identity import Identity as AmqpIdentity
from frontends.amqp.auth.shared_keys import Keys
from frontends.amqp.server import AmqpServer
from frontends.logins.connection_limits import ConnectionLimits
from frontends.logins.failed_logins import FailedLogins
from frontends.logins.passwords import Passwords
from frontends.logins.tokens import Tokens
from frontends.rest.app import Door
from frontends.rest.auth.identity import Identity
from frontends.xmpp import namespaces as ns
from frontends.xmpp.component import Component
from tests import redis_latency
from tests.admitting import ADMITTING
from tests.contract.conftest import Store
from tests.doors.rest.served import Placed
from tests.unit.xmpp.conftest import Wire
from tests.waiting import PATIENCE_SECONDS

_ROOT: Final = Path(__file__).parents[2]
_OURS: Final = (str(_ROOT / "broker"), str(_ROOT / "frontends"))
_OPTIONS: Final = (
    "<options><x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE' type='hidden'>"
    f"<value>{ns.PUBSUB}#subscribe_options</value></field>"
    "<field var='pubsub#queue_requests'><value>100</value></field></x></options>"
)
_PUBLISH: Final = "<publish node='jobs'><item><a xmlns='urn:x'/></item></publish>"


_TIMES: Final = 6
_BEGINS: Final = 0
"""The argument of the instruction RESUME where a function begins; another one where it goes on after an await."""

pytestmark = pytest.mark.skipif(bool(redis_latency.SEED), reason="a delay resumes coroutines more often")


class Tracer:
    """Counts the calls of the project's own functions while it is entered."""

    def __init__(self) -> None:
        """Begin with none."""
        self.calls: Counter[CodeType] = Counter()

    def __enter__(self) -> Self:
        """Begin to count."""
        sys.setprofile(self._met)
        return self

    def __exit__(self, *_: object) -> None:
        """Count no more."""
        sys.setprofile(None)

    def _met(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # A coroutine that resumes was called before: how often it waits depends on the machine.
        if event == "call" and code.co_filename.startswith(_OURS) and code.co_code[frame.f_lasti + 1] == _BEGINS:
            self.calls[code] += 1

    @property
    def files(self) -> int:
        """Return the number of their files."""
        return len({code.co_filename for code in self.calls})

    def __str__(self) -> str:
        """Return the called functions and how often each was called, in the order of their first calls."""
        return "\n".join(
            f"{number:4} {Path(code.co_filename).relative_to(_ROOT)} {code.co_qualname}"
            for code, number in self.calls.items()
        )


def _least(times: list[Tracer]) -> Tracer:
    """Return the run with the fewest calls: at first caches are empty."""
    return min(times, key=lambda each: each.calls.total())


def _trips(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record the operations of each round trip to Redis from now on, except heartbeats, which come by themselves."""
    trips: list[list[str]] = []
    run_all = Server.run_all

    async def noted(server: Server, calls: Any, *more: Any) -> list[Any]:  # noqa: ANN401  (as it is)
        operations = [str(line[1]) for line in calls]
        if operations != ["heartbeat"]:
            trips.append(operations)
        return await run_all(server, calls, *more)

    monkeypatch.setattr(Server, "run_all", noted)
    return trips


class Frontend:
    """A frontend over a real Redis, whose XMPP server is a list; nothing runs in it by itself."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Open the stream; must be made in the loop."""
        self.wire = Wire()
        self.trips = _trips(monkeypatch)
        door = Component(domain="queue.localhost", secret="s", host="127.0.0.1", port=1)
        settings: dict[str, Any] = {"redis_url": url, "xmpp_domain": "queue.localhost", "xmpp_secret": "s"}
        self.core = RedisCore(Settings(**ADMITTING, **settings), door)
        monkeypatch.setattr(door._stream, "open", lambda: None)
        door.start(self.core, lambda _up: None)
        door._stream.connection_made(self.wire)  # type: ignore[arg-type]
        self._stream = door._stream
        self._say(f"<stream:stream xmlns='{ns.COMPONENT}' xmlns:stream='{ns.STREAM}' id='s1'><handshake/>")

    def _say(self, text: str) -> None:
        self._stream.data_received(text.encode())

    async def ask(self, inside: str, sender: str, until: Callable[[bytes], bool]) -> bytes:
        """Send a request of pubsub; return what is written until that is enough."""
        return await self.ask_service(f"<pubsub xmlns='{ns.PUBSUB}'>{inside}</pubsub>", sender, until)

    async def ask_service(self, inside: str, sender: str, until: Callable[[bytes], bool]) -> bytes:
        """Send a request; return what is written until that is enough."""
        self.wire.writes.clear()
        self.trips.clear()
        self._say(f"<iq type='set' id='r' from='{sender}' to='queue.localhost'>{inside}</iq>")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not until(b"".join(self.wire.writes)):  # noqa: ASYNC110  (a wire tells nobody)
                await asyncio.sleep(0.001)
        return b"".join(self.wire.writes)


def _answered(written: bytes) -> bool:
    return b"<iq type='result'" in written


def _delivered(written: bytes) -> bool:
    return _answered(written) and b"<message" in written


async def test_ceilings(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publish with its delivery, an acknowledgement and a subscribe take at most so many calls, and one round trip."""
    async with store.client() as client:
        await client.flushall()
    frontend = Frontend(store.url, monkeypatch)
    await frontend.ask("<create node='jobs'/>", "a@x/1", _answered)
    subscribe = "<subscribe node='jobs' jid='{0}'/>" + _OPTIONS
    await frontend.ask(subscribe.format("w@x/1"), "w@x/1", _answered)
    publishes, retracts = [], []
    for _ in range(_TIMES):
        publishes.append(Tracer())
        retracts.append(Tracer())
        with publishes[-1]:
            sent = await frontend.ask(_PUBLISH, "a@x/1", _delivered)
        assert frontend.trips == [["publish"]]
        found = re.search(rb"<item id='([^']+)'", sent)
        assert found is not None
        with retracts[-1]:
            item = f"<retract node='jobs'><item id='{found[1].decode()}'/></retract>"
            await frontend.ask(item, "w@x/1", _answered)
        assert frontend.trips == [["retract"]]
    publish, retract = _least(publishes), _least(retracts)
    assert publish.calls.total() <= 140 and publish.files <= 27, str(publish)
    assert retract.calls.total() <= 130, str(retract)
    for worker in ("v@x/1", "v@x/2"):
        await frontend.ask(subscribe.format(worker), worker, _answered)
        # The index of the JID is in another slot: it is written at the same time, and nobody waits for later writes.
        assert sorted(name for trip in frontend.trips[:2] for name in trip) == ["add_to_index", "subscribe"]
    await frontend.core.stop()


async def test_a_call_for_each_partition(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of publishes is one call for each partition that it goes to, and so is its settlement."""
    async with store.client() as client:
        await client.flushall()
    frontend = Frontend(store.url, monkeypatch)
    form = f"<field var='FORM_TYPE' type='hidden'><value>{ns.PUBSUB_NODE_CONFIG}</value></field>"
    form += "<field var='stanzaq#partitions'><value>4</value></field>"
    form = f"<x xmlns='{ns.FORM}' type='submit'>{form}</x>"
    await frontend.ask(f"<create node='jobs'/><configure>{form}</configure>", "a@x/1", _answered)
    # Each partition is opened by its first publish.
    for _ in range(2):
        items = "".join(f"<item id='i{number}'><x xmlns='y'/></item>" for number in range(40))
        batch = f"<publish xmlns='{ns.STANZAQ}' node='jobs'>{items}</publish>"
        written = await frontend.ask_service(batch, "a@x/1", _answered)
        assert written.count(b"<item ") == 40 and b"<error" not in written
    assert list(chain(*frontend.trips)).count("publish") == 4
    member = _OPTIONS.replace("</x>", "<field var='stanzaq#group'><value>g</value></field></x>")
    subscribe = "<subscribe node='jobs' jid='w@x/1'/>" + member
    sent = (await frontend.ask(subscribe, "w@x/1", lambda written: written.count(b"<item ") == 40)).decode()
    locks = re.findall(r"<lock [^>]*token='(\d+)'[^>]*partition='(\d)'", sent)
    rows = zip(re.findall(r"<item id='(\w+)'", sent), locks, strict=True)
    acks = "".join(f"<ack id='{item}' token='{lock[0]}' partition='{lock[1]}'/>" for item, lock in rows)
    settle = f"<settle xmlns='{ns.STANZAQ}' node='jobs'>{acks}</settle>"
    assert b"<error" not in await frontend.ask_service(settle, "w@x/1", _answered)
    assert list(chain(*frontend.trips)).count("retract") == 4
    await frontend.core.stop()


async def test_ceilings_of_http(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message sent over HTTP takes at most so many calls, and one round trip."""
    async with store.client() as client:
        await client.flushall()
    trips = _trips(monkeypatch)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 3_600)
    # The client's logs would pass through our formatter, where an earlier test has set up logging.
    monkeypatch.setattr(logging.getLogger("httpx"), "disabled", True)
    settings: dict[str, Any] = {"redis_url": store.url, "xmpp_domain": "queue.localhost", "xmpp_secret": "s"}
    core = RedisCore(Settings(**ADMITTING, **settings), None, "rest")
    # As in service: a core without a heartbeat would leave a notice for frontends with each publish.
    await core.start()
    identity = Identity(
        Passwords("", FailedLogins("test")), Tokens("", "", "", "sub"), Jid("a@x"), FailedLogins("test")
    )
    door = Door(identity, rate=1e6, header_bytes=8_192, body_bytes=65_536, slow_seconds=10, subscriptions=1)
    door.open(core)
    publishes = []
    async with httpx.AsyncClient(transport=httpx.ASGITransport(Placed(door)), base_url="http://x") as http:
        (await http.put("/queues/jobs")).raise_for_status()
        for _ in range(_TIMES):
            publishes.append(Tracer())
            trips.clear()
            with publishes[-1]:
                answer = await http.post("/queues/jobs", content=b"x", headers={"Content-Type": "text/plain"})
            assert answer.status_code == 201
            assert trips == [["publish"]]
        leases, receives, acknowledgements = [], [], []
        for _ in range(_TIMES):
            leases.append(Tracer())
            with leases[-1]:
                lease = (await http.post("/subscriptions", json={"destinations": "jobs"})).headers["Location"]
            trips.clear()
            receives.append(Tracer())
            with receives[-1]:
                found = await http.get(lease, headers={"Accept": "application/json"})
            assert trips == [["receive"]]
            message, *_ = found.json()["messages"]
            acknowledgements.append(Tracer())
            with acknowledgements[-1]:
                assert (await http.delete(message["href"])).status_code == 200
            assert (await http.delete(lease)).status_code == 200
        await http.post("/batches/jobs", json=[{"text": "x"}] * 4)
        lease = (await http.post("/subscriptions", json={"destinations": "jobs", "prefetch": 1})).headers["Location"]
        (message,) = (await http.get(lease, headers={"Accept": "application/json"})).json()["messages"]
        for path in (f"{lease}/acknowledgements?", None, f"{lease}/acknowledgements?"):
            # One that asks for more while it acknowledges needs one request and one script for a job.
            trips.clear()
            asked = (
                http.post(f"{path}next=1", json=[message["href"]])
                if path
                else http.post(f"{message['complete']}&next=1")
            )
            (message,) = (await asked).json()["messages"]
            assert trips == [["retract" if path else "complete"]]
    publish = _least(publishes)
    assert publish.calls.total() <= 103 and publish.files <= 33, str(publish)
    for times, most in ((leases, 209), (receives, 198), (acknowledgements, 115)):
        assert (least := _least(times)).calls.total() <= most, str(least)
    await core.stop()


async def test_ceilings_of_amqp(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attach, and a job from its receive to the answer of its acknowledgement, take at most so many calls."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 3_600)
    async with store.client() as client:
        await client.flushall()
    settings: dict[str, Any] = {"redis_url": store.url, "xmpp_domain": "queue.localhost", "xmpp_secret": "s"}
    core = RedisCore(Settings(**ADMITTING, **settings), None, "amqp")
    await core.start()
    identity = AmqpIdentity(
        Passwords("", FailedLogins("test")), Tokens("", "", "", ""), Jid("a@x"), Keys(""), FailedLogins("test")
    )
    server = AmqpServer(identity, "127.0.0.1", 0, context=None, connection_limits=ConnectionLimits(10))
    server.start(core)
    assert isinstance(await core.ask(Declare("jobs", Jid("a@x"), {})), Declared)
    attaches, jobs = [], []

    def connect() -> BlockingConnection:
        return BlockingConnection(f"127.0.0.1:{server.port}", allowed_mechs="ANONYMOUS", timeout=PATIENCE_SECONDS)

    # proton blocks: it has a thread of its own, whose calls are not counted.
    peer = await asyncio.to_thread(connect)
    sender = await asyncio.to_thread(peer.create_sender, "jobs")
    for _ in range(_TIMES):
        attaches.append(Tracer())
        with attaches[-1]:
            receiver = await asyncio.to_thread(peer.create_receiver, "jobs")
            await asyncio.sleep(0.1)
        await asyncio.to_thread(sender.send, Message("x"))
        jobs.append(Tracer())
        with jobs[-1]:
            # It gives the credit.
            await asyncio.to_thread(receiver.receive, PATIENCE_SECONDS)
            await asyncio.to_thread(receiver.accept)
            await asyncio.sleep(0.1)
        await asyncio.to_thread(receiver.close)
        # Its subscription ends behind it.
        await asyncio.sleep(0.1)
    for times, most in ((attaches, 550), (jobs, 253)):
        assert (least := _least(times)).calls.total() <= most, str(least)
    await asyncio.to_thread(peer.close)
    await server.drain(PATIENCE_SECONDS)
    await core.stop()
