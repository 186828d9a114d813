"""Parses a stream's bytes into elements (RFC 6120 §4). No I/O; must not know what a stanza means or where bytes come from.

It replaces ElementTree's parser, which slixmpp uses. Any client can send three things that pass ejabberd and are fatal to that
parser, and so to the stream of every frontend: a prefix declared on the stream or the stanza (ejabberd forwards the use and
drops the declaration), a namespace with a brace, and unlimited nesting. This parser returns such a stanza empty, with its
fault, and the stream goes on. Only XML that is not well-formed ends it.
"""

import re
from typing import Final
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from broker.model.frozen import frozen
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.xml.text import DEPTH, RESERVED

_DEPTH: Final = DEPTH + 8
"""The deepest nesting of a stanza: that of a payload, and the elements around it."""

_ELEMENTS: Final = 25_000
"""The most elements in a stanza: each takes one or two microseconds, without a break."""

_PREFIXES: Final = 64
"""The most prefixes in scope: each declaration copies the scope, so this bounds the cost of a hostile stanza."""

_NAMESPACE: Final = 1_023
"""The longest namespace, in characters: it may be written again for each element."""

_TOO_LONG: Final = f"a namespace has at most {_NAMESPACE} characters"

_USED: Final = re.compile(r"(?<![\w.-])([\w.-]++):")
"""Finds what may be a prefix in a text, in linear time."""

_INSIDE_ONLY: Final = frozenset("ːˑـஃๆໆྈྉྊྋ々〱〲〳〴〵ゝゞーヽヾ")
"""Letters to Python that XML allows inside a name but not at its beginning."""


@frozen
class Opened:
    """The stream began; the element has the attributes of its header."""

    element: Element


@frozen
class Stanza:
    """A complete child of the stream; with a fault it has only its attributes."""

    element: Element
    fault: MalformedRequest | None = None


@frozen
class Closed:
    """The stream ended normally."""


@frozen
class Broken:
    """The bytes are not XML, or not allowed in a stream: nothing after them can be read."""

    reason: str


Scope = tuple[str, dict[str, str]]
"""The default namespace, and those of prefixes."""
Event = Opened | Stanza | Closed | Broken


class Reader:
    """Parses one stream. It is outside a stanza, inside one, or skipping the rest of a faulty one."""

    def __init__(self) -> None:
        """Start before the first byte."""
        # Without a separator expat ignores prefixes; otherwise an undeclared one would not be well-formed.
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        # From 2.6 on expat delays a long token until as much again has arrived; here that may only arrive after the answer.
        if hasattr(self._parser, "SetReparseDeferralEnabled"):
            self._parser.SetReparseDeferralEnabled(False)  # noqa: FBT003  (expat's signature)
        self._parser.StartDoctypeDeclHandler = _refuse_doctype
        # The scope at each level: before the stream, in the stream, in the stanza, in each open element.
        self._scopes: list[Scope] = [("", {"xml": ns.XML})]
        self._builder = TreeBuilder()
        self._stanza = Element("none")
        self._fault: MalformedRequest | None = None
        self._elements = 0
        self._skipped = 0
        self._events: list[Event] = []
        self._go_outside()

    def feed(self, data: bytes) -> list[Event]:
        """Parse bytes; still returns what was complete before malformed XML."""
        try:
            self._parser.Parse(data, False)  # noqa: FBT003  (expat's signature: not the last bytes)
        except (expat.ExpatError, ValueError) as fault:
            self._events.append(Broken(str(fault)))
        events, self._events = self._events, []
        return events

    def _go_outside(self) -> None:
        self._parser.StartElementHandler = self._open
        self._parser.EndElementHandler = self._close
        self._parser.CharacterDataHandler = None

    def _open(self, name: str, attributes: dict[str, str]) -> None:
        scope = self._scopes[-1]
        try:
            inner, tag, attributes = _name_element(scope, name, attributes)
        except MalformedRequest as fault:
            if len(self._scopes) == 1:
                raise ValueError(fault.detail) from fault
            # Its addresses have no prefix, so it can still be answered.
            self._stanza = Element(f"{{{scope[0]}}}{name}", attributes)
            self._skip(fault)
            return
        self._scopes.append(inner)
        if len(self._scopes) == 2:
            self._events.append(Opened(Element(tag, attributes)))
            return
        self._elements = 0
        self._builder = TreeBuilder()
        self._stanza = self._builder.start(tag, attributes)
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._builder.data

    def _close(self, _: str) -> None:
        self._events.append(Closed())

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        scopes = self._scopes
        try:
            scope, tag, attributes = _name_element(scopes[-1], name, attributes)
        except MalformedRequest as fault:
            self._skip(fault)
            return
        if len(scopes) > _DEPTH:
            self._skip(MalformedRequest(Problem.PAYLOAD_INVALID, f"nested more than {DEPTH} levels deep"))
            return
        self._elements += 1
        if self._elements > _ELEMENTS:
            self._skip(MalformedRequest(Problem.PAYLOAD_INVALID, f"more than {_ELEMENTS} elements"))
            return
        scopes.append(scope)
        self._builder.start(tag, attributes)

    def _end(self, name: str) -> None:
        prefixes = self._scopes.pop()[1]
        element = self._builder.end(name)
        if prefixes is not self._scopes[1][1]:
            _keep_declarations(element, prefixes, self._scopes[1][1])
        if len(self._scopes) == 2:
            self._events.append(Stanza(self._stanza))
            self._go_outside()

    def _skip(self, fault: MalformedRequest) -> None:
        """Skip the rest of a stanza, and only count its open elements."""
        # As a value: its frames refer to this reader and to the bytes read.
        self._fault = fault.with_traceback(None)
        self._skipped = len(self._scopes) - 1
        self._parser.StartElementHandler = self._skip_start
        self._parser.EndElementHandler = self._skip_end
        self._parser.CharacterDataHandler = None

    def _skip_start(self, _: str, __: dict[str, str]) -> None:
        self._skipped += 1

    def _skip_end(self, _: str) -> None:
        self._skipped -= 1
        if not self._skipped:
            del self._scopes[2:]
            del self._stanza[:]
            self._events.append(Stanza(self._stanza, self._fault))
            self._go_outside()


def _refuse_doctype(*_: object) -> None:
    """Refuse a document type, which could define entities (RFC 6120 §11.1)."""
    msg = "a document type"
    raise ValueError(msg)


def _name_element(scope: Scope, name: str, attributes: dict[str, str]) -> tuple[Scope, str, dict[str, str]]:
    """Return an element's scope, name and attributes in ElementTree's form `{namespace}name`."""
    if attributes:
        if "xmlns" in attributes:
            scope = (attributes.pop("xmlns"), scope[1])
            if len(scope[0]) > _NAMESPACE:
                raise MalformedRequest(Problem.BAD_REQUEST, _TOO_LONG)
        for key in attributes:
            if ":" in key:
                scope = (scope[0], _resolve_attributes(scope[1], attributes))
                break
    if ":" in name:
        return scope, _qualify(scope[1], name), attributes
    namespace = scope[0]
    return scope, (f"{{{namespace}}}{name}" if namespace else name), attributes


def _resolve_attributes(prefixes: dict[str, str], attributes: dict[str, str]) -> dict[str, str]:
    """Add an element's declared prefixes to those in scope, and rename its prefixed attributes, in place."""
    prefixed = [key for key in attributes if ":" in key]
    declared = {key[6:]: attributes.pop(key) for key in prefixed if key.startswith("xmlns:")}
    if declared:
        if max(map(len, declared.values())) > _NAMESPACE:
            raise MalformedRequest(Problem.BAD_REQUEST, _TOO_LONG)
        prefixes = {**prefixes, **declared}
        if len(prefixes) > _PREFIXES:
            raise MalformedRequest(Problem.BAD_REQUEST, f"more than {_PREFIXES} prefixes at once")
    for key in prefixed:
        if key in attributes:
            attributes[_qualify(prefixes, key)] = attributes.pop(key)
    return prefixes


def _keep_declarations(element: Element, prefixes: dict[str, str], outer: dict[str, str]) -> None:
    """Add the declarations of prefixes that an element's values or text use, as `xmlns:` attributes; `outer` are the stream's.

    Names are written without prefixes, so that nothing else would need these: `xsi:type='xs:int'`.
    """
    for text in (element.text, *element.attrib.values(), *(child.tail for child in element)):
        for prefix in _USED.findall(text) if text and ":" in text else ():
            namespace = prefixes.get(prefix)
            if namespace and namespace is not outer.get(prefix) and _may_be_declared(prefix, namespace):
                element.set(f"xmlns:{prefix}", namespace)


def _may_be_declared(prefix: str, namespace: str) -> bool:
    """Tell whether a declaration is one for every parser (Namespaces in XML §3, §4)."""
    return _may_begin_name(prefix) and not prefix.startswith("xml") and namespace not in RESERVED


def _qualify(prefixes: dict[str, str], name: str) -> str:
    """Return a prefixed name with its namespace, in ElementTree's form."""
    prefix, _, local = name.partition(":")
    # The parser took the prefix as part of the name; the rest must be a name itself (Namespaces in XML §4).
    if not _may_begin_name(local) or ":" in local:
        raise MalformedRequest(Problem.BAD_REQUEST, f"{name[:80]} is not a qualified name")
    namespace = prefixes.get(prefix) if prefix else None
    if not namespace:
        raise MalformedRequest(
            Problem.BAD_REQUEST,
            f"the prefix of {name[:80]} is not declared here: servers drop declarations made on the stanza or the stream",
        )
    return f"{{{namespace}}}{local}"


def _may_begin_name(local: str) -> bool:
    """Tell whether a name may begin like this: elements are written without their prefixes."""
    return local[:1] == "_" or (local[:1].isalpha() and local[0] not in _INSIDE_ONLY)
