"""The file of an export, in lines of JSON: each line as a value. Pure; must not know the core, nor where the file is.

The first line says format and version. Each node has a line, and its items follow. The last line has the counts, so a file
that was cut short is noticed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from broker import codec, payloads
from broker.model.items.headers import ELEMENT
from broker.model.items.hints import USUAL_PRIORITY
from broker.model.items.items import Envelope

VERSION: Final = 1


class Unreadable(Exception):  # noqa: N818  (named after the state of the file)
    """The file is no export, or not a whole one: a sentence with its line."""


class _Line(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A line; what has its default is left out."""


class Head(_Line, tag_field="is", tag="stanzaq export", forbid_unknown_fields=False, kw_only=True):
    """The first line: the version of the format, and of the service that wrote it, and when."""

    version: int
    service: str = ""
    at: str = ""


class Content(_Line, kw_only=True):
    """A payload with its type and all headers but those that follow from it; `payload_base64` if it is not UTF-8."""

    content_type: str
    payload: str | None = None
    payload_base64: bytes | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def body(self) -> bytes:
        """The payload as bytes."""
        return (self.payload or "").encode() if self.payload_base64 is None else self.payload_base64

    def envelope(self) -> bytes:
        """Return it as items have it; raises MalformedRequest."""
        return codec.pack(payloads.make_envelope(self.body, self.content_type, self.headers))


class ScheduleLine(Content, kw_only=True):
    """A schedule in the line of its node: its words, the item that it publishes, and by whom; times in ms."""

    words: dict[str, str]
    by: str
    paused: bool = False
    key: str = ""
    priority: int = USUAL_PRIORITY
    delay_ms: int = 0
    ttl_ms: int = 0


class NodeLine(_Line, tag_field="is", tag="node", kw_only=True):
    """A node: its collection, its options by their names without prefix, its rights by bare JID, its schedules."""

    node: str
    incarnation: str
    owner: str
    collection: str = ""
    options: dict[str, str]
    affiliations: Mapping[str, str]
    schedules: list[ScheduleLine] = msgspec.field(default_factory=list)


class ItemLine(Content, tag_field="is", tag="item", kw_only=True):
    """An item of the node above; the position names it in its partition, the times are ms since 1970."""

    item: str
    partition: int
    position: str
    publisher: str
    key: str = ""
    priority: int = USUAL_PRIORITY
    delayed_until_ms: int = 0
    ends_ms: int = 0


class EndLine(_Line, tag_field="is", tag="end", kw_only=True):
    """The last line: how many nodes and items there are."""

    nodes: int
    items: int


_Body = NodeLine | ItemLine | EndLine
Line = Head | _Body

_read_head: Final = msgspec.json.Decoder(Head).decode
_read_body: Final = msgspec.json.Decoder(_Body).decode
_write: Final = msgspec.json.Encoder().encode


def content_of(record: bytes) -> dict[str, Any]:
    """Return the fields of `Content` for an item's envelope."""
    envelope = codec.unpack_any(record)
    headers = {name: text for name, text in envelope.headers.items() if name != ELEMENT}
    return {"content_type": payloads.kind(envelope), "headers": headers, **_text_or_bytes(envelope)}


def _text_or_bytes(envelope: Envelope) -> dict[str, Any]:
    try:
        return {"payload": envelope.body.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": envelope.body}


def write_line(line: Line) -> bytes:
    """Return a line with its end."""
    return _write(line) + b"\n"


def read_lines(name: str, lines: Iterable[bytes]) -> Iterator[tuple[int, NodeLine | ItemLine]]:
    """Read the lines between the first and the last one, with their numbers.

    Raises Unreadable, at the end of a file that is cut short.
    """
    numbered = enumerate(lines, 1)
    _check_head(name, next(numbered, (1, b""))[1])
    nodes = items = 0
    last, end = 1, None
    for last, text in numbered:
        if end is not None:
            msg = f"{name}, line {last}: there is more after the line with the count"
            raise Unreadable(msg)
        try:
            line = _read_body(text)
        except msgspec.DecodeError as wrong:
            if not text.endswith(b"\n"):
                break
            msg = f"{name}, line {last}: {wrong}"
            raise Unreadable(msg) from None
        if isinstance(line, EndLine):
            end = line
            continue
        nodes, items = nodes + isinstance(line, NodeLine), items + isinstance(line, ItemLine)
        if not nodes:
            msg = f"{name}, line {last}: an item stands before the line of its node"
            raise Unreadable(msg)
        yield last, line
    if end is None:
        msg = f"{name} is cut short after line {last}: it has no last line with the count, so export again"
        raise Unreadable(msg)
    if (end.nodes, end.items) != (nodes, items):
        msg = f"{name} has {nodes} nodes and {items} items, and its last line says {end.nodes} and {end.items}: export again"
        raise Unreadable(msg)


def _check_head(name: str, text: bytes) -> None:
    try:
        head = _read_head(text)
    except msgspec.DecodeError:
        msg = f"{name} is no export of stanzaq: its first line does not say so"
        raise Unreadable(msg) from None
    if head.version != VERSION:
        msg = f"{name} has version {head.version} of the format, and this program reads {VERSION}: use stanzaq {head.service}"
        raise Unreadable(msg)
