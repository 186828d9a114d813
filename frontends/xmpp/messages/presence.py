"""Presence of workers (XEP-0254 §4, RFC 6121 §4). Must not know who is subscribed: any presence is passed on."""

from xml.etree.ElementTree import Element

from broker.model.commands import Presence
from broker.model.names import Jid
from frontends.xmpp.xml.text import escaped


def heard(presence: Element) -> Presence | None:
    """Read whether a resource came or went; None when the presence is about something else.

    An error means that the peer cannot be reached, which for a queue is the same as gone.
    """
    sender = presence.get("from")
    kind = presence.get("type")
    if not sender or kind not in {None, "unavailable", "error"}:
        return None
    return Presence(Jid(sender), available=kind is None)


def reply(presence: Element) -> bytes:
    """Write what a presence asks for: the service lets everyone see that it is there; empty when it asks for nothing."""
    sender = presence.get("from")
    kinds = {"subscribe": " type='subscribed'", "probe": ""}
    kind = presence.get("type", "")
    if not sender or kind not in kinds:
        return b""
    return f"<presence from='{escaped(presence.get('to', ''))}' to='{escaped(sender)}'{kinds[kind]}/>".encode()
