"""Answers about the software: ping (XEP-0199) and version (XEP-0092). Must not know the queue."""

from functools import cache
from importlib.metadata import version as installed
from xml.etree.ElementTree import Element

from frontends.xmpp import namespaces as ns
from frontends.xmpp.stanzas import DoorAnswer, Iq, expect
from frontends.xmpp.xml.text import escape


def ping(iq: Iq, _asked: Element) -> DoorAnswer:
    """Answer a ping."""
    expect(iq, "get")
    return DoorAnswer(iq)


def version(iq: Iq, _asked: Element) -> DoorAnswer:
    """Answer with name and version, but not the operating system (XEP-0092 §5)."""
    expect(iq, "get")
    return DoorAnswer(iq, _write())


@cache
def _write() -> bytes:
    return (
        f"<query xmlns='{ns.VERSION}'><name>stanzaq</name><version>{escape(installed('stanzaq'))}</version></query>"
    ).encode()
