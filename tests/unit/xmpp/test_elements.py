"""Payload elements as bytes: what a worker parses equals what the publisher wrote."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.xml.reader import Opened, Reader, Stanza
from frontends.xmpp.xml.text import DEPTH, serialise

_NAMES = st.from_regex(r"[A-Za-z_é][A-Za-z0-9_.é-]{0,8}", fullmatch=True).filter(
    lambda name: not name.lower().startswith("xml")
)
_NAMESPACES = st.sampled_from(["", "urn:a", "urn:b?x=1&y='2'", "urn:{odd}", ns.CLIENT, ns.PUBSUB])
_CHARACTERS = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff") | st.sampled_from(
    "\t\n\r"
)
_TEXTS = st.none() | st.text(_CHARACTERS, max_size=12) | st.sampled_from(["]]>", "<&>'\"", "\U0001f41d", " \r\n\t "])


def _tag(namespace: str, name: str) -> str:
    return f"{{{namespace}}}{name}" if namespace else name


_ATTRIBUTES = st.dictionaries(
    st.builds(_tag, _NAMESPACES | st.just(ns.XML), _NAMES), _TEXTS.map(lambda text: text or ""), max_size=3
)


@st.composite
def _elements(draw: st.DrawFn, depth: int = 0) -> ET.Element:
    element = ET.Element(_tag(draw(_NAMESPACES), draw(_NAMES)), draw(_ATTRIBUTES))
    element.text = draw(_TEXTS)
    for _ in range(draw(st.integers(0, 3 if depth < 3 else 0))):
        child = draw(_elements(depth + 1))
        child.tail = draw(_TEXTS)
        element.append(child)
    return element


def _content(element: ET.Element) -> tuple[object, ...]:
    """Give all that an element says; an absent text and an empty one say the same."""
    inside = [(_content(child), child.tail or "") for child in element]
    return element.tag, element.attrib, element.text or "", inside


def _parsed(data: bytes) -> ET.Element:
    """Parse as the door does: ElementTree's own parser takes no brace in a namespace."""
    opened, stanza = Reader().feed(b"<stream>%b" % data)
    assert isinstance(opened, Opened) and isinstance(stanza, Stanza) and stanza.fault is None
    return stanza.element


@given(_elements())
def test_comes_back_equal(element: ET.Element) -> None:
    """Names, namespaces, attributes, mixed text and tails survive, whatever characters they have.

    The bytes say the same inside an event, whose default namespace is another one.
    """
    written = serialise(element)
    spliced = b"<item xmlns='http://jabber.org/protocol/pubsub#event'>%b</item>" % written
    assert _content(_parsed(written)) == _content(_parsed(spliced)[0]) == _content(element)


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("<a xmlns='urn:x'><![CDATA[1 < 2 & 3 > 2]]></a>", "<a xmlns='urn:x'>1 &lt; 2 &amp; 3 &gt; 2</a>"),
        ("<p:a xmlns:p='urn:x'><p:b/></p:a>", "<a xmlns='urn:x'><b/></a>"),
        ("<a xmlns='urn:x'><b xmlns=''/></a>", "<a xmlns='urn:x'><b xmlns=''/></a>"),
        ("<a xml:lang='de'>\U0001f41d</a>", "<a xmlns='' xml:lang='de'>\U0001f41d</a>"),
        ("<a k='1&#10;2&#13;3&#9;4'/>", "<a xmlns='' k='1&#10;2&#13;3&#9;4'/>"),
        (
            "<a xmlns='urn:x' xmlns:p='urn:p' p:k='1' p:l='2'/>",
            "<a xmlns='urn:x' xmlns:n0='urn:p' n0:k='1' xmlns:n1='urn:p' n1:l='2'/>",
        ),
    ],
)
def test_spells_it_plainly(written: str, stored: str) -> None:
    """CDATA, prefixes and references become one plain spelling with the same content."""
    assert serialise(ET.fromstring(written)).decode() == stored


def test_a_client_s_stanza_is_one_again() -> None:
    """A stanza as payload has the clients' namespace, not that of a component's stream."""
    payload = ET.fromstring(f"<message xmlns='{ns.COMPONENT}'><body>hi</body></message>")
    assert serialise(payload) == b"<message xmlns='jabber:client'><body>hi</body></message>"


def _nested(levels: int) -> ET.Element:
    return ET.fromstring("<a>" * levels + "</a>" * levels)


def test_refuses_a_million_levels() -> None:
    """An element nested without end is refused by its depth, and nothing of the interpreter's stack is used up."""
    with pytest.raises(MalformedRequest) as caught:
        serialise(_nested(1_000_000))
    assert caught.value.problem is Problem.PAYLOAD_INVALID


def test_the_deepest_that_is_taken() -> None:
    """Just as deep as the limit is fine."""
    assert serialise(_nested(DEPTH)).count(b"<") == 2 * DEPTH - 1


@pytest.mark.parametrize(
    "element",
    [ET.Element(f"{{{ns.XML}}}b"), ET.Element(f"{{{ns.XMLNS}}}b"), ET.Element("b", {f"{{{ns.XMLNS}}}k": "1"})],
    ids=["xml", "xmlns", "an attribute of xmlns"],
)
def test_refuses_what_belongs_to_xml_itself(element: ET.Element) -> None:
    """What is in a namespace that nobody may declare has no form that stands alone."""
    parent = ET.Element("a")
    parent.append(element)
    with pytest.raises(MalformedRequest) as caught:
        serialise(parent)
    assert caught.value.problem is Problem.PAYLOAD_INVALID
