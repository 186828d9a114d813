"""A stream's bytes as elements: no client's bytes end the stream of a frontend."""

from itertools import pairwise
from xml.etree import ElementTree as ET
from xml.parsers import expat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.xml.reader import _INSIDE_ONLY, Broken, Closed, Opened, Reader, Stanza
from frontends.xmpp.xml.text import DEPTH, serialise

_HEADER = f"<?xml version='1.0'?><stream:stream xmlns='{ns.COMPONENT}' xmlns:stream='{ns.STREAM}' id='s1'>".encode()
_IQ = "<iq type='set' id='i1' from='a@b/c' to='q'>{}</iq>"
_PLAIN = _IQ.format(
    "<pubsub xmlns='http://jabber.org/protocol/pubsub'><publish node='n'><item xml:lang='en'>"
    "<p:a xmlns:p='urn:x' p:k='1' k='2'>\u00e9 &amp; <![CDATA[<b>]]><c xmlns=''/>tail</p:a></item></publish></pubsub>"
)


def _reader() -> Reader:
    reader = Reader()
    (opened,) = reader.feed(_HEADER)
    assert isinstance(opened, Opened) and opened.element.get("id") == "s1"
    return reader


def _stanza(text: str) -> Stanza:
    (stanza,) = _reader().feed(text.encode())
    assert isinstance(stanza, Stanza)
    return stanza


def test_reads_what_elementtree_reads() -> None:
    """For bytes that both accept, the elements are the same as those of ElementTree's own parser."""
    ours = _stanza(_PLAIN)
    (theirs,) = ET.fromstring(_HEADER + _PLAIN.encode() + b"</stream:stream>")
    assert ours.fault is None
    assert ET.canonicalize(ET.tostring(ours.element)) == ET.canonicalize(ET.tostring(theirs))


@given(st.lists(st.integers(0, 400), max_size=5))
def test_pieces_make_no_difference(cuts: list[int]) -> None:
    """However the network cuts the bytes, the stanzas are the same."""
    data = _PLAIN.encode() * 2 + b" " + b"</stream:stream>"
    reader = _reader()
    events = []
    edges = [0, *sorted(cuts), len(data)]
    for start, end in pairwise(edges):
        events += reader.feed(data[start:end])
    assert [type(event) for event in events] == [Stanza, Stanza, Closed]
    assert [len(event.element[0]) for event in events if isinstance(event, Stanza)] == [1, 1]


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ("<p:a/>", Problem.BAD_REQUEST),
        ("<a p:k='1'/>", Problem.BAD_REQUEST),
        ("<a xmlns:p='urn:x'/><p:b/>", Problem.BAD_REQUEST),
        ("<:a/>", Problem.BAD_REQUEST),
        ("<a:/>", Problem.BAD_REQUEST),
        ("<p:q:a xmlns:p='urn:x'/>", Problem.BAD_REQUEST),
        ("<p:1 xmlns:p='urn:x'/>", Problem.BAD_REQUEST),
        ("<p:\u30fca xmlns:p='urn:x'/>", Problem.BAD_REQUEST),
        ("<p:a xmlns:p=''/>", Problem.BAD_REQUEST),
        ("<a " + " ".join(f"xmlns:p{n}='urn:{n}'" for n in range(100)) + "/>", Problem.BAD_REQUEST),
        (f"<a xmlns='{'u' * 1_024}'/>", Problem.BAD_REQUEST),
        (f"<a xmlns:p='{'u' * 1_024}'/>", Problem.BAD_REQUEST),
        (f"<a>{'<b/>' * 25_000}</a>", Problem.PAYLOAD_INVALID),
        (f"<a>{'<b>' * 1_000_000}x{'</b>' * 1_000_000}</a>", Problem.PAYLOAD_INVALID),
        ("<a>" * DEPTH + "<p:b/>" + "</a>" * DEPTH, Problem.BAD_REQUEST),
    ],
)
def test_a_faulty_stanza_is_one_fault(inside: str, problem: Problem) -> None:
    """A meaningless stanza that a server lets through, a million levels too, is an error for its sender.

    The stanza's addresses are kept for the answer, and the next stanza is read normally.
    """
    reader = _reader()
    faulty, sound = reader.feed((_IQ.format(f"before{inside}after") + _PLAIN).encode())
    assert isinstance(faulty, Stanza) and isinstance(sound, Stanza)
    assert faulty.fault is not None and faulty.fault.problem is problem
    # Its frames would keep the bytes read.
    assert faulty.fault.__traceback__ is None
    assert (faulty.element.tag, faulty.element.get("id"), len(faulty.element)) == (f"{{{ns.COMPONENT}}}iq", "i1", 0)
    assert sound.fault is None
    assert sound.element[0].tag == f"{{{ns.PUBSUB}}}pubsub"


def test_a_name_behind_a_prefix_is_one_by_itself() -> None:
    """A name accepted behind a prefix can be written without it: checked for each letter there is against expat itself."""

    def well_formed(name: str) -> bool:
        try:
            expat.ParserCreate().Parse(f"<{name}/>".encode(), True)  # noqa: FBT003  (expat's)
        except expat.ExpatError:
            return False
        return True

    letters = [chr(code) for code in range(0x80, 0x10000) if chr(code).isalpha()]
    wrong = {letter for letter in letters if well_formed(f"p{letter}") and not well_formed(letter)}
    assert wrong == _INSIDE_ONLY


def test_a_fault_in_the_stanza_s_own_tag() -> None:
    """An undeclared prefix on the IQ itself is answered too."""
    stanza = _stanza("<iq p:k='1' type='get' id='i1' from='a@b'/>")
    assert stanza.fault is not None
    assert (stanza.element.tag, stanza.element.get("id")) == (f"{{{ns.COMPONENT}}}iq", "i1")


@pytest.mark.parametrize("inside", ["<a:b/>", "<b a:k=''/>"])
def test_bombs_of_declarations(inside: str) -> None:
    """A stanza as long as servers take does not become many times as long, whatever it declares and uses."""
    stanza = _stanza(_IQ.format(f"<p xmlns='urn:x' xmlns:a='{'u' * 1_023}'>{inside * 20_000}</p>"))
    with pytest.raises(MalformedRequest) as caught:
        serialise(stanza.element[0])
    assert caught.value.problem is Problem.PAYLOAD_TOO_BIG


def test_a_namespace_may_have_braces() -> None:
    """Any text is a namespace, also ElementTree's own spelling of names."""
    assert _stanza(_IQ.format("<a xmlns='urn:}{x}'/>")).element[0].tag == "{urn:}{x}}a"


@pytest.mark.parametrize(
    "data",
    [
        "<iq><a></iq>",
        "<iq>&bomb;</iq>",
        "<iq>\x01</iq>",
        "<iq k='1' k='2'/>",
        "<!DOCTYPE iq [<!ENTITY b 'x'>]><iq>&b;</iq>",
    ],
)
def test_what_is_not_xml_ends_the_stream(data: str) -> None:
    """A well-formedness fault is final; no entity and no document type is ever taken in (RFC 6120 §11.1)."""
    sound, broken = _reader().feed((_PLAIN + data).encode())
    assert isinstance(sound, Stanza) and isinstance(broken, Broken)


def test_a_document_type_before_the_stream_ends_it() -> None:
    """Nor may a document type precede the stream, where XML itself would let it stand."""
    (broken,) = Reader().feed(b"<!DOCTYPE x [<!ENTITY b 'boom'>]>" + _HEADER)
    assert isinstance(broken, Broken)


@pytest.mark.parametrize("header", ["<p:stream>", "<stream p:k='1'>"])
def test_a_faulty_header_ends_the_stream(header: str) -> None:
    """A meaningless header is the server's fault, and final."""
    (broken,) = Reader().feed(header.encode())
    assert isinstance(broken, Broken)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """No bytes raise anything."""
    for event in _reader().feed(data):
        assert isinstance(event, Stanza | Closed | Broken)
