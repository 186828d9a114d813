"""The plugin over a stream: requests, repeats, answers, and what is kept."""

import asyncio
from collections.abc import Callable
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

import pytest
from slixmpp.jid import InvalidJID

from stanzaq.xep_qos import MemoryOutbox, Outstanding, Refused, Step, Unconfirmed
from tests.unit.xep_qos.stream import PEER, SENDER, StillLoop, Stream, error, received, result

_JOB = ET.fromstring("<job xmlns='urn:example:job'>1</job>")


def _left(outbox: MemoryOutbox) -> list[tuple[Step, float]]:
    return [(sent.step, sent.since) for sent in outbox.pending()]


def test_acknowledged(loop: StillLoop, stream: Stream) -> None:
    """An IQ of type set to the full address, with an id, whose result ends it."""
    sending = loop.start(stream.qos.send_acknowledged(_JOB, PEER))
    request = stream.take()
    assert (request.tag, request.get("type"), request.get("to")) == ("{jabber:client}iq", "set", PEER)
    assert request.get("id")
    assert request.find("{urn:xmpp:qos}acknowledged/{jabber:client}message/{urn:example:job}job") is not None
    assert not sending.done()
    stream.hear(result(request))
    assert sending.result() is None
    assert stream.sent == []


def test_assured(loop: StillLoop, stream: Stream) -> None:
    """Two IQs with ids of their own and one msgId."""
    sending = loop.start(stream.qos.send_assured(_JOB, PEER))
    first = stream.take()
    stream.hear(received(first))
    second = stream.take()
    assert (first[0].tag, second[0].tag) == ("{urn:xmpp:qos}assured", "{urn:xmpp:qos}deliver")
    assert first[0].get("msgId") == second[0].get("msgId")
    assert first.get("id") != second.get("id")
    stream.hear(result(second))
    assert sending.result() is None


def test_a_message_of_slixmpp(loop: StillLoop, stream: Stream) -> None:
    """A message stanza is embedded as it is, without addresses."""
    message = stream.make_message(PEER, mbody="hello", mfrom=SENDER)
    loop.start(stream.qos.send_acknowledged(message, PEER))
    embedded = stream.take()[0][0]
    assert (embedded.get("to"), embedded.get("from")) == (None, None)
    assert embedded.findtext("{jabber:client}body") == "hello"


def test_no_address(loop: StillLoop) -> None:
    """What is no JID is told at once, and is not kept to be told at each restart."""
    outbox = MemoryOutbox()
    stream = Stream(loop, outbox)
    stream.bind()
    sending = loop.start(stream.qos.send_assured(_JOB, "jobs@@queue.example.org"))
    assert isinstance(sending.exception(), InvalidJID)
    assert outbox.pending() == []


def test_msg_ids_are_unique(loop: StillLoop, stream: Stream) -> None:
    """No two messages share a msgId, in one run or in two (S14)."""
    streams = [stream, Stream(loop)]
    streams[1].bind()
    for one in (*streams, *streams):
        loop.start(one.qos.send_assured(_JOB, PEER))
    assert len({request[0].get("msgId") for one in streams for request in one.sent}) == 4


def test_a_repeat_is_the_same(loop: StillLoop, stream: Stream) -> None:
    """Silence is answered after 5 s, 10 s, ... by the same stanza, byte for byte; a late answer to any of them counts."""
    sending = loop.start(stream.qos.send_assured(_JOB, PEER))
    for seconds in (5, 10, 20):
        loop.advance(seconds - 0.001)
        before = len(stream.sent)
        loop.advance(0.001)
        assert len(stream.sent) == before + 1
    assert len(stream.sent) == 4
    assert len({ET.tostring(request) for request in stream.sent}) == 1
    first = stream.sent[0]
    stream.sent.clear()
    stream.hear(received(first))
    assert stream.take()[0].tag == "{urn:xmpp:qos}deliver"
    assert not sending.done()


def test_silence_is_told(loop: StillLoop) -> None:
    """After the last try the sender is told, and nothing is kept."""
    outbox = MemoryOutbox()
    stream = Stream(loop, outbox, tries=2)
    stream.bind()
    sending = loop.start(stream.qos.send_acknowledged(_JOB, PEER))
    loop.advance(5)
    loop.advance(10)
    assert isinstance(sending.exception(), Unconfirmed)
    assert len(stream.sent) == 2
    assert outbox.pending() == []


def test_wait_is_waited_for(loop: StillLoop, stream: Stream) -> None:
    """An error of type wait leads to the same request after half of 5 s at least, and all of them at most."""
    loop.start(stream.qos.send_acknowledged(_JOB, PEER))
    request = stream.take()
    stream.hear(error(request, "wait", "resource-constraint"))
    loop.advance(2.49)
    assert stream.sent == []
    loop.advance(2.51)
    assert ET.tostring(stream.take()) == ET.tostring(request)


def test_a_few_at_a_time(loop: StillLoop, stream: Stream) -> None:
    """Of many messages to one address 50 are under way, and the next goes when one is done; other addresses have their own."""
    for _message in range(60):
        loop.start(stream.qos.send_acknowledged(_JOB, PEER))
    assert len(stream.sent) == 50
    loop.start(stream.qos.send_acknowledged(_JOB, "other@queue.example.org"))
    assert len(stream.sent) == 51
    stream.hear(result(stream.sent[7]))
    assert len(stream.sent) == 52


def test_those_who_wait_come_apart(loop: StillLoop, stream: Stream) -> None:
    """Messages that were refused together do not come back together."""
    for _message in range(20):
        loop.start(stream.qos.send_assured(_JOB, PEER))
    requests = stream.sent.copy()
    stream.sent.clear()
    stream.hear(*(error(request, "wait", "resource-constraint") for request in requests))
    loop.advance(2.5)
    numbers = []
    for _tenth in range(25):
        loop.advance(0.1)
        numbers.append(len(stream.sent))
    assert numbers[-1] == 20
    assert len(set(numbers)) > 3


def test_a_refusal_is_told(loop: StillLoop) -> None:
    """A permanent error is raised to the caller with its condition, and nothing is kept."""
    outbox = MemoryOutbox()
    stream = Stream(loop, outbox)
    stream.bind()
    sending = loop.start(stream.qos.send_assured(_JOB, PEER))
    stream.hear(error(stream.take(), "cancel", "not-allowed", "who are you?"))
    told = sending.exception()
    assert isinstance(told, Refused)
    assert (told.condition, told.text) == ("not-allowed", "who are you?")
    assert outbox.pending() == []


def test_what_was_lost_is_sent_anew(loop: StillLoop, stream: Stream) -> None:
    """After `item-not-found` the same <assured/> goes out under a new IQ id, so that no old answer fits it (SX8)."""
    loop.start(stream.qos.send_assured(_JOB, PEER))
    first = stream.take()
    stream.hear(received(first))
    stream.hear(error(stream.take(), "cancel", "item-not-found"))
    again = stream.take()
    assert ET.tostring(again[0]) == ET.tostring(first[0])
    assert again.get("id") != first.get("id")


def _from_stranger(answer: Element) -> Element:
    answer.set("from", "stranger@example.net/1")
    return answer


def _of_another(answer: Element) -> Element:
    answer.set("id", "another")
    return answer


def _as_a_request(answer: Element) -> Element:
    answer.set("type", "set")
    return answer


@pytest.mark.parametrize("spoilt", [_from_stranger, _of_another, _as_a_request])
def test_what_is_no_answer(spoilt: Callable[[Element], Element], loop: StillLoop, stream: Stream) -> None:
    """An IQ of a stranger, with another id, or that is itself a request, answers nothing."""
    sending = loop.start(stream.qos.send_acknowledged(_JOB, PEER))
    answer = result(stream.sent[0])
    stream.hear(spoilt(answer))
    assert not sending.done()
    stream.hear(result(stream.sent[0]))
    assert sending.done()


def test_an_answer_that_comes_twice(loop: StillLoop, stream: Stream) -> None:
    """The second of two answers changes nothing."""
    sending = loop.start(stream.qos.send_acknowledged(_JOB, PEER))
    answer = result(stream.take())
    stream.hear(answer, answer)
    stream.hear(answer)
    assert sending.result() is None


def test_nothing_goes_out_without_a_session(loop: StillLoop) -> None:
    """What is sent before the session, or after the connection is lost, waits for the next one; no try is lost by it."""
    stream = Stream(loop, tries=1)
    sending = loop.start(stream.qos.send_acknowledged(_JOB, PEER))
    loop.advance(1000)
    assert stream.sent == []
    stream.bind()
    loop.settle()
    first = stream.take()
    stream.lose()
    loop.advance(1000)
    assert stream.sent == []
    stream.bind()
    loop.settle()
    second = stream.take()
    assert ET.tostring(first[0]) == ET.tostring(second[0])
    stream.hear(result(second))
    assert sending.result() is None


def test_a_session_that_is_resumed(loop: StillLoop, stream: Stream) -> None:
    """A stream that XEP-0198 resumes carries requests again."""
    stream.lose()
    loop.start(stream.qos.send_acknowledged(_JOB, PEER))
    assert stream.sent == []
    stream.event("session_resumed", "")
    loop.settle()
    assert len(stream.sent) == 1


def test_the_outbox_follows(loop: StillLoop) -> None:
    """A message is kept before it is sent and before <deliver/>, and forgotten when it is delivered."""
    outbox = MemoryOutbox()
    stream = Stream(loop, outbox)
    stream.bind()
    began = loop.now
    loop.start(stream.qos.send_assured(_JOB, PEER))
    assert _left(outbox) == [(Step.ASSURED, began)]
    loop.advance(3)
    stream.hear(received(stream.take()))
    assert _left(outbox) == [(Step.DELIVER, began + 3)]
    stream.hear(result(stream.take()))
    assert outbox.pending() == []


async def _resumed(stream: Stream) -> None:
    await asyncio.gather(*stream.qos.resume().values())


@pytest.mark.parametrize("step", list(Step))
def test_resume(step: Step, loop: StillLoop) -> None:
    """A restarted sender goes on from the step that was reached, and is told what failed."""
    outbox = MemoryOutbox()
    outbox.save(Outstanding("old-1", SENDER, PEER, "<message xmlns='jabber:client' id='old-1'/>", step, loop.now))
    stream = Stream(loop, outbox)
    stream.bind()
    resuming = loop.start(_resumed(stream))
    request = stream.take()
    assert request[0].tag == f"{{urn:xmpp:qos}}{step}"
    assert request[0].get("msgId") == (None if step is Step.ACKNOWLEDGED else "old-1")
    stream.hear(error(request, "auth", "forbidden"))
    told = resuming.exception()
    # The earlier run may have heard nothing of what it sent, so a no is certain only where nothing is delivered yet.
    assert isinstance(told, Refused if step is Step.ASSURED else Unconfirmed)
    assert (told.sent.msg_id, told.condition) == ("old-1", "forbidden")
    assert outbox.pending() == []


def test_resume_leaves_alone_what_is_under_way(loop: StillLoop, stream: Stream) -> None:
    """What this run is sending is not sent a second time."""
    loop.start(stream.qos.send_assured(_JOB, PEER))
    stream.take()
    assert loop.start(_resumed(stream)).result() is None
    assert stream.sent == []


def test_a_cancelled_message_stays(loop: StillLoop) -> None:
    """Who gives up waiting has not given up the message: it is there for `resume`."""
    outbox = MemoryOutbox()
    stream = Stream(loop, outbox)
    stream.bind()
    sending = loop.start(stream.qos.send_assured(_JOB, PEER))
    sending.cancel()
    loop.settle()
    with pytest.raises(asyncio.CancelledError):
        sending.result()
    assert _left(outbox) == [(Step.ASSURED, loop.now)]
    stream.sent.clear()
    loop.start(_resumed(stream))
    assert len(stream.sent) == 1


@pytest.mark.parametrize("feature", ["urn:xmpp:qos", "urn:other"])
def test_supported(feature: str, loop: StillLoop, stream: Stream) -> None:
    """Support is asked by disco#info (S15, S16)."""
    asking = loop.start(stream.qos.supported(PEER))
    request = stream.take()
    query = "http://jabber.org/protocol/disco#info"
    assert request[0].tag == f"{{{query}}}query"
    stream.hear(result(request, f"<query xmlns='{query}'><feature var='{feature}'/></query>"))
    assert asking.result() is (feature == "urn:xmpp:qos")


def test_the_plugin_can_go(loop: StillLoop, stream: Stream) -> None:
    """A plugin that is disabled hears nothing more."""
    sending = loop.start(stream.qos.send_acknowledged(_JOB, PEER))
    stream.end()
    stream.hear(result(stream.take()))
    assert not sending.done()
