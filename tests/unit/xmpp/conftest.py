"""Shared by the tests of the XMPP door: an IQ from its payload, and a stream whose wire is a list."""

import asyncio
from collections.abc import Callable
from xml.etree import ElementTree as ET

import pytest

from broker.model.names import Jid
from broker.model.problems import MalformedRequest, Problem
from broker.model.roles import Role
from frontends.xmpp import requests, stanzas
from frontends.xmpp.adhoc import commands
from frontends.xmpp.stanzas import BatchRequest, DoorAnswer, Iq, Question

WORKER = Jid("worker@example.org/desk")
SERVICE = "queue.example.org"
HEADER = (
    "<stream:stream xmlns='jabber:component:accept' xmlns:stream='http://etherx.jabber.org/streams'"
    " from='queue.example.org' id='s1'>"
)
CONTEXT = commands.AdhocContext({Jid("admin@example.org"): Role.ADMIN}.get, b"a secret of the frontends")

MakeIq = Callable[..., Iq]
Fault = Callable[..., MalformedRequest]


def _make_iq(payload: str, kind: str = "set", sender: str = WORKER, request: str = "r1") -> Iq:
    element = ET.fromstring(f"<iq xmlns='jabber:component:accept'>{payload}</iq>")
    element.attrib.update({"type": kind, "id": request, "from": sender, "to": SERVICE})
    iq = stanzas.parse_iq(element)
    assert iq is not None
    return iq


@pytest.fixture
def make_iq() -> MakeIq:
    """Give the maker of IQs: `make_iq(payload, kind, sender, request)`."""
    return _make_iq


@pytest.fixture
def read() -> Callable[..., Question | DoorAnswer | BatchRequest]:
    """Give the translator of an IQ's payload: `read(payload, kind, sender, request)`."""

    def asked(*arguments: str, **named: str) -> Question | DoorAnswer | BatchRequest:
        iq = _make_iq(*arguments, **named)
        found = requests.read(iq, CONTEXT)
        assert not isinstance(found, Question) or found.iq is iq, "what is answered is what was asked (QX7)"
        return found

    return asked


@pytest.fixture
def fault() -> Fault:
    """Give the translator of an IQ's payload that must be refused: `fault(payload, kind, sender, request)`."""

    def refused(*arguments: str, **named: str) -> MalformedRequest:
        with pytest.raises(MalformedRequest) as caught:
            requests.read(_make_iq(*arguments, **named), CONTEXT)
        # XEP-0254's own error for this one has no text.
        assert caught.value.detail or caught.value.problem is Problem.OPTIONS_REQUIRED, "every refusal says why"
        return caught.value

    return refused


class Wire:
    """A transport that keeps what is written, one entry per write; `unsent` is its reported buffer size."""

    def __init__(self) -> None:
        """Begin open and empty."""
        self.writes: list[bytes] = []
        self.unsent = 0
        self.ended = asyncio.Event()
        self.aborted = asyncio.Event()

    def write(self, data: bytes) -> None:
        """Keep the bytes."""
        self.writes.append(data)
        if b"</stream:stream>" in data:
            self.ended.set()

    def get_write_buffer_size(self) -> int:
        """Tell what is held back."""
        return self.unsent

    def set_write_buffer_limits(self, high: int) -> None:
        """Take any limit."""

    def get_extra_info(self, _: str, default: object = None) -> object:
        """Know nothing about a socket."""
        return default

    def close(self) -> None:
        """Do nothing: `abort` follows."""

    def abort(self) -> None:
        """Remember it."""
        self.aborted.set()


@pytest.fixture
def wire() -> Wire:
    """Give a transport whose wire is a list."""
    return Wire()
