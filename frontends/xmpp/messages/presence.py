"""Presence of workers (XEP-0254 §4, RFC 6121 §4). Must not know who is subscribed: all presence goes to the core."""

from xml.etree.ElementTree import Element

from broker.model.commands import Presence
from broker.model.names import Jid
from frontends.xmpp.xml.text import escape


def parse_presence(presence: Element) -> Presence | None:
    """Parse whether a resource became available or unavailable; None for other presence.

    An error means that the peer cannot be reached, which a queue treats as unavailable.
    """
    sender = presence.get("from")
    kind = presence.get("type")
    if not sender or kind not in {None, "unavailable", "error"}:
        return None
    return Presence(Jid(sender), available=kind is None)


def reply(presence: Element) -> bytes:
    """Write the answer to a presence: everyone may see the service's presence; empty if none is due."""
    sender = presence.get("from")
    kinds = {"subscribe": " type='subscribed'", "probe": ""}
    kind = presence.get("type", "")
    if not sender or kind not in kinds:
        return b""
    return f"<presence from='{escape(presence.get('to', ''))}' to='{escape(sender)}'{kinds[kind]}/>".encode()
