"""The door's shell between a simulated core and a wire that the test reads."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from structlog.testing import capture_logs

from broker import codec
from broker.model.commands import (
    Approve,
    Bounce,
    Command,
    Confirm,
    Deliver,
    Describe,
    MoveItems,
    Overview,
    PrepareMessage,
    Presence,
    Publish,
    Renew,
    Retract,
    Stats,
    Unlock,
)
from broker.model.core import Core, Outlet, Reply
from broker.model.items.items import Delivery, Envelope, NodeEvent
from broker.model.items.qos import Stage
from broker.model.names import Jid, Partition
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.options import NodeConfig
from broker.model.problems import Problem
from broker.model.results import (
    Counted,
    Described,
    Done,
    MovedItems,
    Published,
    Refused,
    Renewed,
    Result,
    Retracted,
    Unlocked,
)
from broker.model.roles import Role
from frontends.xmpp import component as module
from frontends.xmpp import namespaces as ns
from frontends.xmpp.component import Component
from tests.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.unit.xmpp.conftest import Wire

_DOMAIN = "queue.example.org"
_WORKER = Jid("w@example.org/1")
_ADMIN = Jid("admin@example.org")
_HEADER = f"<stream:stream xmlns='{ns.COMPONENT}' xmlns:stream='{ns.STREAM}' id='s1'><handshake/>"
_RECORD = NodeRecord("jobs", "1", 1, NodeConfig())
_DELIVERY = Delivery(
    partition=Partition("jobs", "i1"),
    position="1-1",
    item_id="j1",
    subscriber=_WORKER,
    token=1,
    attempt=1,
    of=20,
    deadline_ms=0,
    publisher=_WORKER,
    envelope=codec.pack(Envelope(b"<a xmlns='urn:x'/>")),
    sequence=1,
)


class PlayedCore:
    """A core whose outcomes the test chooses: it keeps what was submitted until `answer`."""

    def __init__(self) -> None:
        """Begin with nothing submitted."""
        self.submitted: list[tuple[Command, Reply]] = []
        self.broken = False

    @property
    def commands(self) -> list[Command]:
        """What was submitted and is not answered."""
        return [command for command, _ in self.submitted]

    def submit(self, command: Command, reply: Reply) -> None:
        """Keep the command, or fail."""
        if self.broken:
            msg = "a defect"
            raise RuntimeError(msg)
        self.submitted.append((command, reply))

    async def ask(self, command: Command) -> Result:
        """Play no part here."""
        raise NotImplementedError(command)

    def answer(self, outcome: Result) -> None:
        """Give the oldest command its outcome."""
        _, reply = self.submitted.pop(0)
        reply(outcome)


class Door:
    """A component on the test's wire, with the test's core."""

    def __init__(self, wire: "Wire", *, strict: bool = False, event_log: Jid | None = None) -> None:
        """Connect it, as a server would."""
        self.wire = wire
        self.core = PlayedCore()
        self.links: list[bool] = []
        self.component = Component(
            domain=_DOMAIN,
            secret="s",
            host="127.0.0.1",
            port=1,
            strict_iq_type=strict,
            event_log=event_log,
        )
        self.component._stream.open = lambda: None  # type: ignore[method-assign]
        self.component.start(self.core, self.links.append, {_ADMIN: Role.ADMIN}.get)
        self.component._stream.connection_made(wire)  # type: ignore[arg-type]
        self.feed(_HEADER)
        wire.writes.clear()

    def feed(self, text: str) -> None:
        """Let the server say something."""
        self.component._stream.data_received(text.encode())

    async def heard(self) -> list[ET.Element]:
        """Give what the door wrote until the end of this turn of the loop."""
        await asyncio.sleep(0)
        data = b"".join(self.wire.writes)
        self.wire.writes.clear()
        return list(ET.fromstring(b"<wire>%b</wire>" % data))


@pytest.fixture
async def door(wire: "Wire") -> Door:
    """Give a connected door."""
    return Door(wire)


def _iq(payload: str, kind: str = "set", request: str = "r1", to: str = _DOMAIN, sender: str = _WORKER) -> str:
    return f"<iq type='{kind}' id='{request}' from='{sender}' to='{to}'>{payload}</iq>"


_PUBLISH = f"<pubsub xmlns='{ns.PUBSUB}'><publish node='jobs'><item><a xmlns='urn:x'/></item></publish></pubsub>"
_RETRACT = f"<pubsub xmlns='{ns.PUBSUB}'><retract node='jobs'><item id='j1'/></retract></pubsub>"
_UNLOCK = f"<pubsub xmlns='{ns.PUBSUB}'><unlock xmlns='{ns.QUEUEING}' node='jobs'><item id='j1'/></unlock></pubsub>"
_REDRIVE = {"node": "jobs", "all": "1", "rate": "10000"}
_INFO = f"<query xmlns='{ns.DISCO_INFO}' node='jobs'/>"


def _condition(stanza: ET.Element) -> str:
    error = stanza.find("error")
    assert stanza.get("type") == "error" and error is not None
    return error[0].tag.rpartition("}")[2]


async def test_it_is_what_the_core_expects(door: Door) -> None:
    """The component is an Outlet, and is content with a Core."""
    outlet: Outlet = door.component
    core: Core = door.core
    assert (outlet, core) == (door.component, door.core)


async def test_a_publish_is_answered_once(door: Door) -> None:
    """A publish becomes a command, and its outcome the one reply with its id (Q26)."""
    door.feed(_iq(_PUBLISH))
    (command,) = door.core.commands
    assert isinstance(command, Publish)
    assert await door.heard() == []
    door.core.answer(Published("j9"))
    (reply,) = await door.heard()
    assert (reply.get("id"), reply.get("type"), reply.get("to"), reply.get("from")) == (
        "r1",
        "result",
        _WORKER,
        _DOMAIN,
    )


async def test_addresses_are_prepared(door: Door) -> None:
    """RFC 7622: a server passes addresses on as clients and other servers write them."""
    door.feed(_iq(_PUBLISH, to="Queue.EXAMPLE.org.", sender="Stra\u00dfe@Example.org./A"))
    (command,) = door.core.commands
    assert isinstance(command, Publish)
    assert command.sender == "strasse@example.org/A"
    door.core.answer(Published("j9"))
    (reply,) = await door.heard()
    assert (reply.get("type"), reply.get("to"), reply.get("from")) == ("result", command.sender, _DOMAIN)
    door.feed("<presence from='W@example.org./1' to='Queue.example.org' type='unavailable'/>")
    assert door.core.commands == [Presence(_WORKER, available=False)]


async def test_forbidden_before_anything_is_read(door: Door) -> None:
    """A JID that is no administrator is refused administrators' commands, without asking the core."""
    form = f"<x xmlns='{ns.FORM}' type='submit'/>"
    overview = f"<command xmlns='{ns.COMMANDS}' node='{ns.ADMIN_OVERVIEW}'>{form}</command>"
    for asked in (overview, overview.replace(form, "")):
        door.feed(_iq(asked))
        (reply,) = await door.heard()
        assert (_condition(reply), door.core.commands) == ("forbidden", [])
    door.feed(_iq(overview, sender=f"{_ADMIN}/desk"))
    assert door.core.commands == [Overview(Jid(f"{_ADMIN}/desk"), 0, 50)]


async def test_a_transfer_is_answered_once(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many steps of the core are one answer, and meanwhile one waiting request."""
    scans = iter(("1", ""))

    async def ask(command: Command) -> Result:
        assert isinstance(command, MoveItems)
        assert door.component._waiting == 1
        return MovedItems(1, {}, next(scans))

    monkeypatch.setattr(door.core, "ask", ask)
    fields = "".join(f"<field var='{name}'><value>{value}</value></field>" for name, value in _REDRIVE.items())
    form = f"<x xmlns='{ns.FORM}' type='submit'>{fields}</x>"
    door.feed(_iq(f"<command xmlns='{ns.COMMANDS}' node='{ns.ADMIN_REDRIVE}'>{form}</command>"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (heard := await door.heard()):
            pass
    assert [reply[0][0].text for reply in heard] == ["moved 2"]
    assert door.component._waiting == 0


@pytest.mark.parametrize("space", [ns.CLIENT, ns.COMPONENT])
async def test_stanzas_come_in_either_namespace(door: Door, space: str) -> None:
    """Servers that leave stanzas in the clients' namespace are understood."""
    door.feed(_iq(_PUBLISH).replace("<iq", f"<iq xmlns='{space}'"))
    assert len(door.core.commands) == 1


@pytest.mark.parametrize(("payload", "outcome"), [(_RETRACT, Retracted(_WORKER)), (_UNLOCK, Unlocked(_WORKER))])
async def test_the_holder_hears_first(door: Door, payload: str, outcome: Result) -> None:
    """Notification first, then the result, in one write (QX17)."""
    door.feed(_iq(payload))
    door.core.answer(outcome)
    await asyncio.sleep(0)
    assert len(door.wire.writes) == 1
    message, reply = await door.heard()
    assert (message.tag, message.get("to"), reply.tag, reply.get("type")) == ("message", _WORKER, "iq", "result")


async def test_one_write_per_turn(door: Door) -> None:
    """The output of one turn of the loop leaves in one write, in order."""
    door.feed("".join(_iq(_PUBLISH, request=f"r{n}") for n in range(50)))
    for n in range(50):
        door.core.answer(Published(str(n)))
    door.component.deliver([_DELIVERY])
    assert not door.component.flushed()
    await asyncio.sleep(0)
    assert len(door.wire.writes) == 1
    *replies, delivery = await door.heard()
    assert [reply.get("id") for reply in replies] == [f"r{n}" for n in range(50)]
    assert delivery.tag == "message"


async def test_flushed_means_gone(door: Door) -> None:
    """Sent marks may move only when nothing is buffered, nothing is unsent and the stream is open."""
    assert door.component.flushed()
    door.wire.unsent = 1
    assert not door.component.flushed()
    door.wire.unsent = 0
    door.component._stream.connection_lost(None)
    assert not door.component.flushed()
    assert door.links == [True, False]


async def test_while_down_nothing_is_kept(door: Door) -> None:
    """Output while the stream is down is dropped and never counted as flushed: others send it (X8, X11)."""
    door.component._stream.connection_lost(None)
    door.component.deliver([_DELIVERY])
    door.component.notify(NodeEvent("jobs", _WORKER, "purge"))
    assert await door.heard() == []
    assert not door.component.flushed()
    assert not door.component.connected


async def test_a_refusal_is_an_error(door: Door) -> None:
    """Redis away, late or full reaches the asker as its stanza error, never as silence."""
    for problem, condition in (
        (Problem.OUT_OF_MEMORY, "resource-constraint"),
        (Problem.UNAVAILABLE, "internal-server-error"),
        (Problem.TIMED_OUT, "remote-server-timeout"),
    ):
        door.feed(_iq(_PUBLISH))
        door.core.answer(Refused(problem, "because"))
        (reply,) = await door.heard()
        assert _condition(reply) == condition


@pytest.mark.parametrize(
    ("stanza", "condition"),
    [
        (_iq("<query xmlns='jabber:iq:last'/>", "get"), "service-unavailable"),
        (_iq("<ping xmlns='urn:xmpp:ping'/>"), "bad-request"),
        (_iq(_PUBLISH, to=f"x@{_DOMAIN}"), "service-unavailable"),
        (_iq(_PUBLISH, to=f"{_DOMAIN}/x"), "service-unavailable"),
        (_iq(_PUBLISH, "banana"), "bad-request"),
        (_iq(""), "bad-request"),
        (_iq(_PUBLISH * 2), "bad-request"),
        (_iq(f"<p:a/>{_PUBLISH}"), "bad-request"),
        (_iq(_PUBLISH.replace("<a xmlns='urn:x'/>", "<a>" * 1_000_000 + "</a>" * 1_000_000)), "bad-request"),
        (_iq(_RETRACT.replace("j1", "j" * 1_000_000)), "bad-request"),
        (_iq(_PUBLISH.replace("<a ", f"<a k='{'x' * 300_000}' ")), "not-acceptable"),
    ],
)
async def test_bad_input_costs_its_sender_an_error(door: Door, stanza: str, condition: str) -> None:
    """Each bad IQ gets exactly one error with its id, and its neighbour an answer as ever."""
    door.feed(stanza + _iq(_PUBLISH, request="neighbour"))
    door.core.answer(Published("1"))
    assert door.core.commands == []
    error, result = await door.heard()
    assert (error.get("id"), _condition(error)) == ("r1", condition)
    assert (result.get("id"), result.get("type")) == ("neighbour", "result")


@pytest.mark.parametrize(
    "stanza",
    [
        _iq(_PUBLISH, "result"),
        _iq(_PUBLISH, "error"),
        _iq(_PUBLISH).replace(" id='r1'", ""),
        _iq(_PUBLISH).replace(f" from='{_WORKER}'", ""),
        "<message from='a@b' to='q' type='chat'><body>hello</body></message>",
        "<message from='a@b' to='q' type='error' id='garbage'><error type='cancel'/></message>",
        "<message><p:a/></message>",
        "<presence type='error'/>",
        "<presence from='a@b' type='subscribed'/>",
        "<banana/>",
        "<features xmlns='http://etherx.jabber.org/streams'/>",
    ],
)
async def test_what_needs_no_answer_gets_none(door: Door, stanza: str) -> None:
    """Responses that nobody waits for, stray messages and stanzas without address are ignored."""
    door.feed(stanza)
    assert door.core.commands == []
    assert await door.heard() == []


async def test_a_fault_of_ours_is_told_and_survived(door: Door) -> None:
    """An unexpected exception answers internal-server-error, is logged, and the stream goes on."""
    door.core.broken = True
    with capture_logs() as logs:
        door.feed(_iq(_PUBLISH))
    door.core.broken = False
    door.feed(_iq(_PUBLISH, request="r2"))
    with capture_logs() as more:
        door.core.answer(Done())
    first, second = await door.heard()
    assert (_condition(first), first.get("id")) == ("internal-server-error", "r1")
    assert (_condition(second), second.get("id")) == ("internal-server-error", "r2")
    assert [entry["log_level"] for entry in logs + more] == ["error", "error"]
    assert door.component._waiting == 0
    assert door.component._waiting_of == {}


async def test_presence_and_bounces_reach_the_core(door: Door) -> None:
    """Coming, going and a delivery that came back are commands of their own, and nobody is answered (Q18, Q33)."""
    door.component.deliver([_DELIVERY])
    (message,) = await door.heard()
    door.feed(
        f"<presence from='{_WORKER}' to='{_DOMAIN}'/><presence from='{_WORKER}' to='{_DOMAIN}' type='unavailable'/>"
    )
    door.feed(
        f"<message from='{_WORKER}' to='{_DOMAIN}' type='error' id='{message.get('id')}'><error type='cancel'/></message>"
    )
    assert door.core.commands == [
        Presence(_WORKER, available=True),
        Presence(_WORKER, available=False),
        Bounce(_WORKER, _DELIVERY.partition, "1-1", 1, gone=True),
    ]
    for _ in range(3):
        door.core.answer(Refused(Problem.LOCK_LOST))
    assert await door.heard() == []


async def test_confirmations_reach_the_core(door: Door) -> None:
    """The reply to an IQ of ours is a command, whichever frontend sent that IQ, and nobody is answered (SX13)."""
    door.component.deliver([replace(_DELIVERY, stage=Stage.ACKNOWLEDGED)])
    (iq,) = await door.heard()
    door.feed(f"<iq from='{_WORKER}' to='{_DOMAIN}' type='result' id='{iq.get('id')}'/>")
    door.feed(f"<iq from='{_WORKER}' to='{_DOMAIN}' type='error' id='{iq.get('id')}'><error type='wait'/></iq>")
    lock = (_WORKER, _DELIVERY.partition, "1-1", 1)
    assert door.core.commands == [
        Confirm(*lock, Stage.ACKNOWLEDGED),
        Bounce(*lock, gone=False, stage=Stage.ACKNOWLEDGED),
    ]
    for _ in range(2):
        door.core.answer(Refused(Problem.LOCK_LOST))
    assert await door.heard() == []


async def test_a_presence_request_is_granted(door: Door) -> None:
    """Who asks for the service's presence gets it."""
    door.feed(f"<presence from='{_WORKER}' to='{_DOMAIN}' type='subscribe'/>")
    (reply,) = await door.heard()
    assert reply.get("type") == "subscribed"


async def test_a_node_s_info_takes_two_questions(door: Door) -> None:
    """The record says whether the asker may know; then the counts complete the answer (P8)."""
    door.feed(_iq(_INFO, "get"))
    assert door.core.commands == [Describe("jobs", _WORKER, as_owner=False)]
    door.core.answer(Described(_RECORD))
    assert door.core.commands == [Stats("jobs", _WORKER)]
    door.core.answer(Counted(0, 0, 0, 0, 0, 0, 0, 0))
    (reply,) = await door.heard()
    assert (reply.get("type"), reply[0].get("node")) == ("result", "jobs")
    door.feed(_iq(_INFO, "get"))
    door.core.answer(Refused(Problem.NODE_NOT_FOUND))
    (reply,) = await door.heard()
    assert _condition(reply) == "item-not-found"
    door.feed(_iq(f"<query xmlns='{ns.DISCO_INFO}'/>", "get"))
    (reply,) = await door.heard()
    assert reply.get("type") == "result"


async def test_gets_for_sets_are_counted_or_refused(wire: "Wire", door: Door) -> None:
    """A retract by get is taken and counted (QX1); with the strict switch it is refused."""
    door.feed(_iq(_RETRACT, "get") + _iq(_RETRACT, "set"))
    assert [type(command) for command in door.core.commands] == [Retract, Retract]
    assert door.component.gets_for_sets == 1
    strict = Door(wire, strict=True)
    strict.feed(_iq(_RETRACT, "get"))
    (reply,) = await strict.heard()
    assert _condition(reply) == "bad-request"


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let few requests wait: five of all, three of one."""
    monkeypatch.setattr(module, "WAITING_MOST", 5)
    monkeypatch.setattr(module, "WAITING_MOST_OF_ONE", 3)
    return iter(())


async def test_a_flood_is_refused_and_its_neighbours_are_not(narrow: None, door: Door) -> None:
    """A JID with too many waiting requests gets resource-constraint; another sender is served, up to the total limit."""
    door.feed("".join(_iq(_PUBLISH, request=f"a{n}") for n in range(4)))
    door.feed("".join(_iq(_PUBLISH, request=f"b{n}", sender="b@x/1") for n in range(3)))
    refused = await door.heard()
    assert [(stanza.get("id"), _condition(stanza)) for stanza in refused] == [
        ("a3", "resource-constraint"),
        ("b2", "resource-constraint"),
    ]
    with capture_logs() as logs:
        door.feed(f"<presence from='c@x/1' to='{_DOMAIN}' type='unavailable'/>")
    assert [entry["event"] for entry in logs] == ["passed over"]
    for _ in range(5):
        door.core.answer(Published("1"))
    door.feed(_iq(_PUBLISH, request="later"))
    assert len(door.core.commands) == 1


async def test_a_corrupt_item_is_logged(door: Door) -> None:
    """An item that cannot be read is not sent, and the core that handed it over goes on."""
    with capture_logs() as logs:
        door.component.deliver([replace(_DELIVERY, envelope=b"?")])
    assert await door.heard() == []
    assert [entry["event"] for entry in logs] == ["an item cannot be read"]


async def test_drain_answers_what_it_took(door: Door) -> None:
    """Draining refuses new requests, waits for the answers that are due, and closes the stream after them (X11)."""
    door.feed(_iq(_PUBLISH, request="before"))
    drained = asyncio.create_task(door.component.drain(5))
    await asyncio.sleep(0)
    door.feed(_iq(_PUBLISH, request="during"))
    (refused,) = await door.heard()
    assert (refused.get("id"), _condition(refused)) == ("during", "internal-server-error")
    door.core.answer(Published("1"))
    await door.wire.ended.wait()
    written = b"".join(door.wire.writes)
    assert written.index(b"before") < written.index(b"</stream:stream>")
    door.component._stream.connection_lost(None)
    await drained
    assert not door.component.connected


async def test_drain_does_not_wait_for_ever(door: Door) -> None:
    """An answer that does not come is given up at the deadline."""
    door.feed(_iq(_PUBLISH))
    with capture_logs() as logs:
        drained = asyncio.create_task(door.component.drain(0.01))
        await door.wire.ended.wait()
        door.component._stream.connection_lost(None)
        await drained
    assert "closing with requests unanswered" in [entry["event"] for entry in logs]


# Batches (urn:stanzaq:0#batch).


def _settle(rows: str) -> str:
    return _iq(f"<settle xmlns='{ns.STANZAQ}' node='jobs'>{rows}</settle>")


def _ended(message: ET.Element) -> list[tuple[str, str | None]]:
    return [(end.tag.rpartition("}")[2], end.get("id")) for end in message[0][0]]


async def test_the_holders_hear_before_the_batch_s_result(door: Door) -> None:
    """QX17: others whose locks end are notified, the sender only by the one result, in one write, when all is known."""
    rows = "<ack id='a' token='1'/><release id='b' token='2'/><ack id='c' token='3'/><renew id='d' token='4'/>"
    door.feed(_settle(f"{rows}<ack id='e'/><release id='f' token='6'/>"))
    assert [type(command) for command in door.core.commands] == [Renew, Retract, Retract, Unlock, Unlock]
    other = Jid("w@example.org")
    outcomes = (Renewed(4, 0), Retracted(_WORKER), Retracted(other), Unlocked(_WORKER))
    with capture_logs() as logs:
        for outcome in outcomes:
            door.core.answer(outcome)
        assert door.wire.writes == []
        door.core.answer(Refused(Problem.FORBIDDEN))
    assert [entry["item"] for entry in logs] == ["f"]
    await asyncio.sleep(0)
    assert len(door.wire.writes) == 1
    theirs, reply = await door.heard()
    assert (theirs.get("to"), _ended(theirs)) == (other, [("retract", "c")])
    assert (reply.get("id"), reply.get("type")) == ("r1", "result")
    assert [(row.get("id"), row[0][0].tag.rpartition("}")[2]) for row in reply[0]] == [
        ("e", "bad-request"),
        ("f", "forbidden"),
    ]


async def test_each_row_of_a_batch_waits(narrow: None, door: Door) -> None:
    """Limits of waiting requests count each row: a batch above them is refused, and an answered one makes room again."""
    door.feed(_settle("".join(f"<ack id='{n}' token='1'/>" for n in range(4))))
    (refused,) = await door.heard()
    assert (_condition(refused), door.core.commands) == ("resource-constraint", [])
    for _ in range(2):
        door.feed(_settle("<ack id='0' token='1'/><ack id='1' token='1'/><ack id='2'/>"))
        assert (door.component._waiting, len(door.core.commands)) == (3, 2)
        for _ in range(2):
            door.core.answer(Retracted(None))
        (reply,) = await door.heard()
        assert [(row.get("id"), row[0][0].tag.rpartition("}")[2]) for row in reply[0]] == [("2", "bad-request")]
    assert (door.component._waiting, door.component._waiting_of) == (0, {})


async def test_a_batch_survives_a_fault_of_ours(door: Door) -> None:
    """Rows that the core cannot take, and a batch of malformed rows alone, are answered at once."""
    door.core.broken = True
    with capture_logs() as logs:
        door.feed(_settle("<ack id='a' token='1'/><ack id='b'/>"))
    (reply,) = await door.heard()
    assert [row[0][0].tag.rpartition("}")[2] for row in reply[0]] == ["internal-server-error", "bad-request"]
    assert [entry["log_level"] for entry in logs].count("error") == 1
    assert door.component._waiting == 0


async def test_a_draining_frontend_takes_no_batch(door: Door) -> None:
    """X11: a batch that was taken is answered whole, a later one is refused whole."""
    door.feed(_settle("<ack id='a' token='1'/><ack id='b' token='2'/>"))
    drained = asyncio.create_task(door.component.drain(5))
    await asyncio.sleep(0)
    door.feed(_settle("<ack id='c' token='3'/>").replace("r1", "later"))
    (refused,) = await door.heard()
    assert (refused.get("id"), _condition(refused)) == ("later", "internal-server-error")
    for _ in range(2):
        door.core.answer(Retracted(None))
    await door.wire.ended.wait()
    assert b"<iq type='result' id='r1'" in b"".join(door.wire.writes)
    door.component._stream.connection_lost(None)
    await drained


# Messages and promises (urn:xmpp:qos).

_NODE = f"jobs@{_DOMAIN}"
_JOB = "<message xmlns='jabber:client' id='m1'><a xmlns='urn:x'/></message>"
_ACKNOWLEDGED = f"<acknowledged xmlns='{ns.QOS}'>{_JOB}</acknowledged>"
_ASSURED = f"<assured xmlns='{ns.QOS}' msgId='m1'>{_JOB}</assured>"
_DELIVER = f"<deliver xmlns='{ns.QOS}' msgId='m1'/>"


def _message(inside: str = "<a xmlns='urn:x'/>", to: str = _NODE, more: str = "") -> str:
    return f"<message id='m1' from='{_WORKER}' to='{to}'{more}>{inside}</message>"


@pytest.mark.parametrize("to", [_DOMAIN, _NODE, f"{_NODE}/desk"])
async def test_the_three_requests_of_qos(door: Door, to: str) -> None:
    """Each is a command, to the service or to a node, and each result has the request's id and addresses (S3, S9, S11)."""
    publish = f"<message xmlns='jabber:client'>{_PUBLISH}</message>"
    inside = publish if to == _DOMAIN else _JOB
    for payload in (_ACKNOWLEDGED, _ASSURED, _DELIVER):
        door.feed(_iq(payload.replace(_JOB, inside), to=to))
    assert [type(command) for command in door.core.commands] == [Publish, PrepareMessage, Deliver]
    for outcome in (Published("j1"), Done(), Done()):
        door.core.answer(outcome)
    replies = await door.heard()
    assert [(reply.get("type"), reply.get("from"), reply.get("to")) for reply in replies] == [
        ("result", to, _WORKER)
    ] * 3
    assert [[(child.tag, child.get("msgId")) for child in reply] for reply in replies] == [
        [],
        [(f"{{{ns.QOS}}}received", "m1")],
        [],
    ]


async def test_a_plain_message_is_a_publish(door: Door) -> None:
    """S2: it goes into the queue, and nobody is told that it did."""
    door.feed(_message())
    (command,) = door.core.commands
    assert isinstance(command, Publish) and (command.node, command.sender) == ("jobs", _WORKER)
    door.core.answer(Published("j1"))
    assert await door.heard() == []


async def test_a_plain_message_that_fails_comes_back(door: Door) -> None:
    """S13: refused by the core, unreadable, or come while the frontend stops: its sender is told."""
    door.feed(_message())
    door.core.answer(Refused(Problem.NODE_NOT_FOUND))
    door.feed(_message("<a/><b/>"))
    door.feed(_message("<p:a/>"))
    door.core.broken = True
    with capture_logs():
        door.feed(_message())
    door.core.broken = False
    door.component.refuse()
    door.feed(_message())
    errors = await door.heard()
    assert [_condition(error) for error in errors] == [
        "item-not-found",
        "bad-request",
        "bad-request",
        "internal-server-error",
        "internal-server-error",
    ]
    assert {(error.tag, error.get("id"), error.get("from"), error.get("to")) for error in errors} == {
        ("message", "m1", _NODE, _WORKER)
    }


@pytest.mark.parametrize(
    "stanza",
    [
        _message(more=" type='error'"),
        _message("<p:a/>", more=" type='error'"),
        _message("<body>hello</body>", _DOMAIN),
        _message(to="jobs@elsewhere.example.org"),
        _message().replace(f" from='{_WORKER}'", ""),
    ],
)
async def test_messages_that_nobody_answers(door: Door, stanza: str) -> None:
    """Errors are never answered, and a message to the service itself is no publish."""
    door.feed(stanza)
    assert door.core.commands == [] and await door.heard() == []


async def test_an_owner_s_answer(door: Door) -> None:
    """P27: a returned form is an answer; a JID that may not give it is told so, and nobody is told anything else."""
    form = (
        f"<x xmlns='{ns.FORM}' type='submit'><field var='FORM_TYPE'><value>{ns.PUBSUB_SUBSCRIBE_AUTHORIZATION}</value>"
        "</field><field var='pubsub#node'><value>jobs</value></field>"
        "<field var='pubsub#subscriber_jid'><value>s@x</value></field>%s</x>"
    )
    said = f"<message xmlns='{ns.COMPONENT}' id='f1' from='{_WORKER}' to='{_DOMAIN}'>{form}</message>"
    allow = "<field var='pubsub#allow'><value>1</value></field>"
    door.feed(said % allow)
    assert door.core.commands == [Approve("jobs", _WORKER, Jid("s@x"), "", allow=True)]
    door.core.answer(Done())
    door.feed(said % allow)
    door.core.answer(Refused(Problem.FORBIDDEN))
    door.feed(said % "")
    heard = await door.heard()
    assert [(error.get("id"), _condition(error)) for error in heard] == [("f1", "forbidden"), ("f1", "bad-request")]
    # At a node's address it is an item like any other, and a misaddressed form is nobody's answer.
    door.feed((said % allow).replace(f"to='{_DOMAIN}'", f"to='jobs@{_DOMAIN}'"))
    assert [type(command) for command in door.core.commands] == [Publish]
    door.feed((said % allow).replace("<message ", "<message type='error' "))
    assert len(door.core.commands) == 1


async def test_misuse_is_reported(wire: "Wire") -> None:
    """S21: watchers are told of malformed, untrusted and excessive requests, and not of a queue's own refusals."""
    door = Door(wire, event_log=Jid("ops@example.org"))
    door.feed(_iq(_ASSURED.replace("msgId='m1'", "")))
    error, event = await door.heard()
    assert (_condition(error), event.get("to"), event[0].get("id")) == ("bad-request", "ops@example.org", "bad-request")
    for problem, condition, events in (
        (Problem.NOT_TRUSTED, "not-allowed", 1),
        (Problem.TOO_MUCH_HELD, "resource-constraint", 1),
        (Problem.FORBIDDEN, "forbidden", 0),
    ):
        door.component._log._next_ms = 0
        door.feed(_iq(_ASSURED, to=_NODE))
        door.core.answer(Refused(problem, "why"))
        error, *told = await door.heard()
        assert (_condition(error), len(told)) == (condition, events)
    door.feed(_iq(_RETRACT.replace("<item id='j1'/>", "")))
    assert len(await door.heard()) == 1
