"""Members of a group: who may be one, what they ask, and which jobs they lose with a partition."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

import pytest

from stanzaq import Job, StanzaqError, Worker
from stanzaq.transport.account import Account
from stanzaq.transport.interface import Delivery, Lock
from stanzaq.xmpp import stanzas
from stanzaq.xmpp.connection import XmppConnection
from stanzaq.xmpp.worker import XmppTransport
from tests.unit.library.test_runs import Service, delivery, prepare, runs, until

ACCOUNT = Account.read("xmpp://a@example.org", None, "x", None, "required")
LOCK_TIME = "stanzaq#lock_seconds"


@pytest.mark.parametrize("group", ["", "a b", "a\tb", "a\nb", "x" * 256, "ü" * 128])
def test_names(group: str) -> None:
    """A name that the service would refuse is refused at once."""
    with pytest.raises(ValueError, match="write a name of 1 to 255 bytes that is printable and has no blanks"):
        Worker("xmpp://a@example.org", group=group)


def test_over_http() -> None:
    """A group needs XMPP."""
    with pytest.raises(ValueError, match="group= needs XMPP"):
        Worker("https://a@queue.example.org", group="billing")


class Receiver:
    """Holds locks, and loses some."""

    def __init__(self, *held: Lock) -> None:
        """Hold these."""
        self.held = set(held)

    def deliver(self, delivery: Delivery) -> None:
        """Play no part here."""

    def deleted(self, node: str, item: str) -> None:
        """Play no part here."""

    def locks(self, node: str) -> set[Lock]:
        """Return what is held."""
        return {lock for lock in self.held if lock.node == node}

    def locks_of(self, node: str, item: str) -> list[Lock]:
        """Return those of an item."""
        return [lock for lock in self.held if (lock.node, lock.item) == (node, item)]

    def lost(self, lock: Lock) -> None:
        """Lose it."""
        self.held.remove(lock)


class Asked:
    """Answers the requests of a connection by their tag, and records them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, str], seconds: float = 60) -> None:
        """Answer with these contents; a node's locks last so many seconds."""
        field = f"<field var='{LOCK_TIME}'><value>{seconds}</value></field>"
        queue = f"<feature var='{stanzas.QUEUEING}'/><x xmlns='{stanzas.FORM}'>{field}</x>"
        subscribed = "<subscription subid='7' subscription='subscribed'/>"
        self.answers = {
            "query": f"<query xmlns='{stanzas.DISCO_INFO}'>{queue}</query>",
            "subscribe": f"<pubsub xmlns='{stanzas.PUBSUB}'>{subscribed}</pubsub>",
            "locks": "".join(
                f"<lock xmlns='{stanzas.STANZAQ}' node='n' item='{item}' token='{item}'/>" for item in "5678"
            ),
            **answers,
        }
        self.all: list[Element] = []

        async def ask(_: XmppConnection, what: str, _kind: str, payload: str) -> Element:
            asked = ET.fromstring(payload)
            self.all.append(asked)
            tag = _tag(asked[0] if asked.tag == f"{{{stanzas.PUBSUB}}}pubsub" else asked)
            if tag not in self.answers:
                msg = f"cannot {what}: item-not-found"
                raise StanzaqError(msg, "item-not-found")
            return ET.fromstring(f"<iq xmlns='jabber:client' type='result'>{self.answers[tag]}</iq>")

        async def run(connection: XmppConnection, listener: Any) -> None:  # noqa: ANN401
            await listener.connected()

        monkeypatch.setattr(XmppConnection, "ask", ask)
        monkeypatch.setattr(XmppConnection, "run", run)

    def count(self, tag: str) -> int:
        """Return how often this was asked."""
        return sum(_tag(part) == tag for each in self.all for part in each.iter())


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def lost(partition: int, reason: str) -> Element:
    """Write the notice of a lost partition."""
    about = f"node='n' partition='{partition}' group='g' epoch='1' fence='4' reason='{reason}'"
    event = f"<event xmlns='{stanzas.EVENT}'><lost xmlns='{stanzas.STANZAQ}' {about}/></event>"
    return ET.fromstring(f"<message xmlns='jabber:client'>{event}</message>")


async def member(receiver: Receiver, test: Callable[[XmppTransport], Any]) -> None:
    """Run a member of a group while a test does something."""
    transport = XmppTransport(ACCOUNT, group="g")
    running = asyncio.create_task(transport.run(receiver, {"n": 3}, prepare))
    try:
        await test(transport)
    finally:
        running.cancel()
        await asyncio.wait({running})


async def test_subscribes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member names its group each time it subscribes; a change of options could not make it join again."""
    asked = Asked(monkeypatch, {"renew": f"<renew xmlns='{stanzas.STANZAQ}' node='n'/>"})

    async def test(transport: XmppTransport) -> None:
        await until(lambda: asked.count("subscribe") == 1)
        transport.message(lost(0, "moved"))
        await until(lambda: asked.count("renew") == 1)
        assert asked.count("subscribe") == 1
        transport.message(lost(0, "lapsed"))
        await until(lambda: asked.count("subscribe") == 2 and asked.count("renew") == 2)

    await member(Receiver(), test)
    forms = [each for each in asked.all if each.find(f"{{{stanzas.PUBSUB}}}subscribe") is not None]
    assert [stanzas.field(form, "stanzaq#group") for form in forms] == ["g", "g"]


async def test_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member renews its leases within a third of the lock time, also after a refusal, and no longer than it is connected."""
    asked = Asked(monkeypatch, {}, seconds=0.03)
    gone = 0

    async def test(_: XmppTransport) -> None:
        nonlocal gone
        await until(lambda: asked.count("renew") > 2)
        gone = len(asyncio.all_tasks())

    await member(Receiver(), test)
    assert len(asyncio.all_tasks()) == 1 < gone
    assert {each.get("node") for each in asked.all if _tag(each) == "renew"} == {"n"}


async def test_lost_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The locks from before the loss of a partition end with it, and no others: of another partition, or of its return."""
    owned = "".join(f"<owned node='n' partition='{number}' fence='6'/>" for number in (1, 3))
    asked = Asked(monkeypatch, {"renew": f"<renew xmlns='{stanzas.STANZAQ}' node='n'>{owned}</renew>"})
    gone, old, new, other = (
        Lock("n", str(item), item, partition) for item, partition in ((8, None), (5, 1), (7, 1), (6, 2))
    )
    receiver = Receiver(gone, old, new, other)

    async def test(transport: XmppTransport) -> None:
        await until(lambda: asked.count("locks") == 1)
        transport.message(lost(0, "moved"))
        transport.message(lost(1, "moved"))
        await until(lambda: len(receiver.held) == 2)

    await member(receiver, test)
    assert receiver.held == {new, other}


async def test_an_owner_leaves_after_its_jobs() -> None:
    """A member that stops keeps its partitions until its jobs have ended: when it leaves, another gets what it holds."""
    service, told, going = Service(), list[str](), asyncio.Event()

    async def handler(job: Job[Any]) -> None:
        told.append(job.id)
        await going.wait()

    async def pause() -> None:
        told.append("left")

    service.pause = pause  # type: ignore[method-assign]
    played = runs(service, handler, concurrency=1)
    for item in ("runs", "waits"):
        played.deliver(delivery(item))
    await until(lambda: told)
    played.begin_no_more()
    finishing = asyncio.create_task(played.finish(5, owns=True))
    await asyncio.sleep(0)
    going.set()
    await finishing
    assert told == ["runs", "left"]
    assert [each[0] for each in service.told] == ["acknowledged", "waits"]
    played.close()
