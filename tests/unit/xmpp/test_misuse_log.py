"""Events of XEP-0337: misuse of QoS, at a limited rate."""

from xml.etree import ElementTree as ET

from broker.model.names import Jid
from broker.model.problems import Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.messages.misuse_log import EventLog

REQUEST = ET.Element("iq", {"from": "mallory@x/<1>"})


def _misuse(log: EventLog, now_ms: int) -> bytes:
    return log.misuse(REQUEST, Problem.NOT_TRUSTED, "not <you>", now_ms)


def test_nobody_reads() -> None:
    """Without a reader there is no event."""
    assert _misuse(EventLog("q", None), 1) == b""


def test_an_event() -> None:
    """S21: the event says when, who, what and why."""
    message = ET.fromstring(_misuse(EventLog("q", Jid("ops@x/log")), 1_700_000_000_123))
    assert message.attrib == {"from": "q", "to": "ops@x/log"}
    event = message[0]
    assert event.tag == f"{{{ns.EVENT_LOG}}}log"
    assert (event.get("timestamp"), event.get("type")) == ("2023-11-14T22:13:20.123Z", "Warning")
    assert (event.get("id"), event.get("subject")) == ("not-trusted", "mallory@x/<1>")
    assert event[0].text == "not <you>"


def test_a_flood_is_summed_up() -> None:
    """One event a second is written, with the number of those that were not."""
    log = EventLog("q", Jid("ops@x"))
    first, *rest = [_misuse(log, 1_000 + n) for n in range(1_000)]
    assert first and not any(rest)
    tag = ET.fromstring(_misuse(log, 2_000)).find(f".//{{{ns.EVENT_LOG}}}tag")
    assert tag is not None and (tag.get("name"), tag.get("value")) == ("suppressed", "999")
