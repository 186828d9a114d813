"""Requests about several items: what goes together, whose answer is whose, and what is asked alone."""

import asyncio
import sys
from collections.abc import Mapping
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

import pytest

from stanzaq import StanzaqError
from stanzaq.retry import Release
from stanzaq.transport.account import Account
from stanzaq.transport.gatherer import Gatherer
from stanzaq.transport.interface import Content, Hints, Lock, Outgoing
from stanzaq.xmpp import stanzas
from stanzaq.xmpp.connection import XmppConnection
from stanzaq.xmpp.publisher import XmppSender
from stanzaq.xmpp.stanzas import XmppOutcomes
from stanzaq.xmpp.worker import XmppTransport
from tests.waiting import PATIENCE_SECONDS

ACCOUNT = Account.read("xmpp://a@example.org", None, "x", None, "required")


class Sent:
    """Records batches and answers them."""

    def __init__(self, outcomes: XmppOutcomes | None = None) -> None:
        """Answer this to all."""
        self.all: list[tuple[str, str]] = []
        self._outcomes = outcomes

    async def __call__(self, node: str, rows: Mapping[str, str]) -> XmppOutcomes | None:
        """Take one."""
        self.all.append((node, "".join(rows.values())))
        return self._outcomes


async def test_one_turn() -> None:
    """What is asked about a node in one turn goes together, at its end; what is asked alone is left to its caller."""
    done = XmppOutcomes({}, "")
    sent = Sent(done)
    gatherer = Gatherer(sent)
    asked = [("a", "1"), ("b", "1"), ("a", "2"), ("a", "3")]
    answers = await asyncio.gather(*(gatherer.ask(node, item, f"<{node}{item}>", "ask") for node, item in asked))
    assert sent.all == [("a", "<a1><a2><a3>")]
    assert answers == [done, None, done, done]


async def test_bounds() -> None:
    """A batch has at most 100 rows and each item once; one that is too large for it goes with the next, or alone."""
    sent = Sent(XmppOutcomes({}, ""))
    gatherer = Gatherer(sent)
    rows = [(str(number), ".") for number in range(150)]
    rows += [
        ("149", ":"),
        ("big", "x" * 40_000),
        ("a", "y" * 30_000),
        ("b", "z" * 2_000),
        ("c", "z" * 2_000),
        ("d", "!"),
    ]
    answers = await asyncio.gather(*(gatherer.ask("n", item, row, "ask") for item, row in rows))
    assert [text for _, text in sent.all] == ["." * 100, "." * 50, "y" * 30_000 + "z" * 2_000, "z" * 2_000 + "!"]
    assert [rows[number][0] for number, answer in enumerate(answers) if answer is None] == ["149", "big"]


async def test_refused_as_such() -> None:
    """If the service refuses the batch as such, each is asked alone."""

    async def refuse(_node: str, _rows: Mapping[str, str]) -> XmppOutcomes:
        msg = "cannot settle"
        raise StanzaqError(msg)

    gatherer = Gatherer(refuse)
    async with asyncio.timeout(PATIENCE_SECONDS):
        answers = await asyncio.gather(gatherer.ask("n", "1", ".", "ask"), gatherer.ask("n", "2", ".", "ask"))
    assert list(answers) == [None, None]


async def test_refused_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may pass is asked alone when the service no longer wants to be left alone."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    gatherer = Gatherer(Sent(XmppOutcomes({"b": stanzas.Refusal("resource-constraint", "wait", "full", 60)}, "")))
    answers = await asyncio.gather(gatherer.ask("n", "a", ".", "ask"), gatherer.ask("n", "b", ".", "ask"))
    assert (answers[1], slept) == (None, [60])


async def test_a_fault_keeps_its_own_row_alone() -> None:
    """An error that somebody keeps does not keep the payloads of the others of its batch."""
    payload = f"{object()}"
    gatherer = Gatherer(Sent(XmppOutcomes({"b": stanzas.Refusal("not-acceptable", "cancel", "")}, "")))
    before = sys.getrefcount(payload)
    told = await asyncio.gather(
        gatherer.ask("n", "a", payload, "ask"), gatherer.ask("n", "b", ".", "ask"), return_exceptions=True
    )
    assert isinstance(told[1], StanzaqError)
    await asyncio.sleep(0)
    assert sys.getrefcount(payload) == before


async def test_cancelled() -> None:
    """A row that is cancelled in its turn is not sent; when all are cancelled, the request is not repeated."""
    sent, stopped = Sent(XmppOutcomes({}, "")), asyncio.Event()
    gatherer = Gatherer(sent)
    first, *others = [asyncio.create_task(gatherer.ask("n", item, item, "ask")) for item in "abc"]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first, *others})
    assert sent.all == [("n", "bc")]

    async def never(_node: str, _rows: Mapping[str, str]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    gatherer = Gatherer(never)
    waiting = [asyncio.create_task(gatherer.ask("n", item, item, "ask")) for item in "ab"]
    for _ in range(3):
        await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await stopped.wait()


class Service:
    """Answers requests of a connection: batches by their tag, and those about one item always with a result."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, str]) -> None:
        """Answer batches with the content of a result, or with an `<error/>`."""
        self.asked: list[Element] = []
        self._answers = answers

        async def up(_: XmppConnection) -> None:
            return

        async def once(_: XmppConnection, _name: str, _kind: str, payload: str) -> Element:
            return self._answered(payload)

        monkeypatch.setattr(XmppConnection, "up", up)
        monkeypatch.setattr(XmppConnection, "_send_once", once)

    def _answered(self, payload: str) -> Element:
        asked = ET.fromstring(payload)
        self.asked.append(asked)
        content = self._answers.get(asked.tag.rpartition("}")[2], "")
        kind = "error" if content.startswith("<error") else "result"
        return ET.fromstring(f"<iq xmlns='jabber:client' type='{kind}'>{content}</iq>")

    @property
    def tags(self) -> list[str]:
        """What was asked."""
        return [each.tag.rpartition("}")[2] for each in self.asked]


def refused(condition: str, kind: str) -> str:
    """Write an error as it is in a row."""
    return f"<error xmlns='jabber:client' type='{kind}'><{condition} xmlns='{stanzas.STANZAS}'/></error>"


def outgoing(item: str) -> Outgoing:
    """Make an item."""
    return Outgoing(item, "n", item, Content(b"1", "application/json"), {}, Hints())


async def test_publishes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items of one turn go together; what is refused for good is raised to its caller, what may pass is sent again alone."""
    rows = f"<item id='a'/><item id='b'>{refused('not-acceptable', 'cancel')}</item><item id='c' duplicate='true'/>"
    rows += f"<item id='d'>{refused('resource-constraint', 'wait')}</item>"
    service = Service(monkeypatch, {"publish": f"<publish xmlns='{stanzas.STANZAQ}' node='n'>{rows}</publish>"})
    sender = XmppSender(XmppConnection(ACCOUNT))
    told = await asyncio.gather(*(sender.publish(outgoing(item)) for item in "abcd"), return_exceptions=True)
    assert [told[0], told[2], told[3]] == [None] * 3
    assert isinstance(told[1], StanzaqError) and told[1].condition == "not-acceptable"
    assert str(told[1]) == "cannot publish to n: not-acceptable"
    assert service.tags == ["publish", "pubsub"]
    assert [item.get("id") for item in service.asked[0]] == ["a", "b", "c", "d"]
    assert [item.get("id") for item in service.asked[1].iter(f"{{{stanzas.PUBSUB}}}item")] == ["d"]


async def test_refused_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a service refuses together goes one by one."""
    service = Service(monkeypatch, {"publish": "<error type='cancel'><feature-not-implemented/></error>"})
    sender = XmppSender(XmppConnection(ACCOUNT))
    await asyncio.gather(*(sender.publish(outgoing(item)) for item in "ab"))
    assert service.tags == ["publish", "pubsub", "pubsub"]


@pytest.mark.parametrize("how", ["acknowledge", "cancel"])
async def test_a_row_alone(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """A request about one item waits out what may pass, as others do, and ends with what is final."""
    kinds = iter([("internal-server-error", "wait"), ("item-not-found", "cancel")])

    async def once(_: XmppConnection, _name: str, _kind: str, _payload: str) -> Element:
        row = f"<row id='a'>{refused(*next(kinds))}</row>"
        return ET.fromstring(f"<iq xmlns='jabber:client' type='result'><rows>{row}</rows></iq>")

    monkeypatch.setattr(XmppConnection, "_send_once", once)
    if how == "cancel":
        assert not await XmppSender(XmppConnection(ACCOUNT)).cancel("n", "a")
    else:
        assert not await XmppTransport(ACCOUNT).acknowledge(Lock("n", "a", 1))
    assert next(kinds, None) is None


async def test_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledgements, releases and renewals of one turn go together; an ended lock is told to the caller that named it."""
    rows = f"<release id='b' token='2'>{refused('item-not-found', 'cancel')}</release>"
    rows += f"<ack id='d' token='4'>{refused('internal-server-error', 'cancel')}</ack>"
    answer = f"<settle xmlns='{stanzas.STANZAQ}' node='n' expires='2026-11-21T10:01:00.000Z'>{rows}</settle>"
    service = Service(monkeypatch, {"settle": answer})
    transport = XmppTransport(ACCOUNT)
    a, b, c, d = (Lock("n", item, number, 0 if item == "c" else None) for number, item in enumerate("abcd", 1))
    told = await asyncio.gather(
        transport.acknowledge(a),
        transport.release(b, Release("no <&>", 5.2)),
        transport.renew(c),
        transport.acknowledge(d),
        return_exceptions=True,
    )
    assert list(told[:2]) == [True, False]
    assert told[2] == stanzas.moment("2026-11-21T10:01:00Z")
    assert isinstance(told[3], StanzaqError) and str(told[3]) == "cannot acknowledge d: internal-server-error"
    (settle,) = service.asked
    assert [(row.tag.rpartition("}")[2], dict(row.attrib)) for row in settle] == [
        ("ack", {"id": "a", "token": "1"}),
        ("release", {"id": "b", "token": "2", "delay": "5", "reason": "no <&>"}),
        ("renew", {"id": "c", "token": "3", "partition": "0"}),
        ("ack", {"id": "d", "token": "4"}),
    ]


def test_deliveries() -> None:
    """A message with several items is read whole: the locks are in the order of the items, and the headers hold for all."""
    items = "".join(f"<item id='{item}'><json xmlns='urn:xmpp:json:0'>{item}</json></item>" for item in (1, 2))
    times = "expires='2026-11-21T10:00:00.000Z' published='2026-11-21T09:00:00.000Z'"
    locks = "".join(f"<lock xmlns='urn:stanzaq:0' node='n' item='{item}' token='{item}' {times}/>" for item in (1, 2))
    message = ET.fromstring(
        f"<message xmlns='jabber:client'><event xmlns='{stanzas.EVENT}'><items node='n'>{items}</items></event>{locks}"
        f"<headers xmlns='{stanzas.HEADERS}'><header name='Collection'>all</header></headers></message>"
    )
    read = stanzas.deliveries(message)
    assert [(each.lock, each.content.body, each.collection) for each in read] == [
        (Lock("n", "1", 1), b"1", "all"),
        (Lock("n", "2", 2), b"2", "all"),
    ]
