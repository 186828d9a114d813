"""Presence of workers."""

from xml.etree import ElementTree as ET

import pytest

from broker.model.commands import Presence
from broker.model.names import Jid
from frontends.xmpp.messages import presence


def _presence(kind: str) -> ET.Element:
    about = f" type='{kind}'" if kind else ""
    return ET.fromstring(f"<presence xmlns='jabber:client' from='w@x/1' to='q.x'{about}/>")


@pytest.mark.parametrize(("kind", "available"), [("", True), ("unavailable", False), ("error", False)])
def test_coming_and_going(kind: str, available: bool) -> None:  # noqa: FBT001
    """Presence says whether a resource is online; an unreachable one is not (Q33, QX16)."""
    assert presence.parse_presence(_presence(kind)) == Presence(Jid("w@x/1"), available=available)
    assert presence.reply(_presence(kind)) == b""


@pytest.mark.parametrize("kind", ["subscribe", "subscribed", "unsubscribe", "unsubscribed", "probe", "banana"])
def test_anything_else_is_not_coming_or_going(kind: str) -> None:
    """Requests for presence, and unknown kinds, change no subscription."""
    assert presence.parse_presence(_presence(kind)) is None


@pytest.mark.parametrize(
    ("kind", "reply"),
    [
        ("subscribe", b"<presence from='q.x' to='w@x/1' type='subscribed'/>"),
        ("probe", b"<presence from='q.x' to='w@x/1'/>"),
    ],
)
def test_the_service_shows_itself(kind: str, reply: bytes) -> None:
    """Whoever asks may see that the service is there (RFC 6121 §3.1.3, §4.3.2)."""
    assert presence.reply(_presence(kind)) == reply


@pytest.mark.parametrize("kind", ["", "probe"])
def test_nobody_s_presence_is_ignored(kind: str) -> None:
    """A presence without a sender changes nothing and is not answered."""
    element = _presence(kind)
    del element.attrib["from"]
    assert presence.parse_presence(element) is None
    assert presence.reply(element) == b""
