"""The requests in a stream's bytes, found without the project's own reader: expat and nothing else.

Knows the envelope of an IQ. Must not know what any request means, nor its answer.
"""

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

HEADER: Final = (
    b"<?xml version='1.0'?><stream:stream xmlns='jabber:component:accept'"
    b" xmlns:stream='http://etherx.jabber.org/streams' from='workflows.shakespeare.lit' id='s1'>"
)
_FENCE: Final = "fence"
_SPACES: Final = ("jabber:component:accept", "jabber:client")

Request = tuple[str, str]
"""The addressee and the id of an answer."""


@dataclass
class Story:
    """The requests of a server: `owed` are answered exactly once each, `doubtful` at most once, everything else never."""

    owed: Counter[Request] = field(default_factory=Counter)
    doubtful: Counter[Request] = field(default_factory=Counter)
    well_formed: bool = True
    whole: bool = False
    """Whether the stream continues: the next bytes are a stanza of their own."""


class _Teller:
    def __init__(self) -> None:
        self.story = Story()
        self._depth = 0
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._top: tuple[str, dict[str, str]] = ("", {})

    def tell(self, data: bytes) -> Story:
        try:
            self._parser.Parse(HEADER + data, False)  # noqa: FBT003  (expat's: not the last of it)
        except expat.ExpatError:
            self.story.well_formed = False
            return self.story
        # A stanza of our own shows whether the bytes before it left anything open.
        with contextlib.suppress(expat.ExpatError):
            self._parser.Parse(f"<{_FENCE}/>", False)  # noqa: FBT003  (expat's)
        return self.story

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 2:
            self._top = (name, attributes)

    def _end(self, _: str) -> None:
        self._depth -= 1
        if self._depth == 1:
            self._stanza(*self._top)

    def _stanza(self, name: str, attributes: dict[str, str]) -> None:
        self.story.whole = name == _FENCE
        request = attributes.get("from", ""), attributes.get("id", "")
        if attributes.get("type") in {"result", "error"} or not all(request):
            return
        if name == "iq" and attributes.get("xmlns", _SPACES[0]) in _SPACES:
            self.story.owed[request] += 1
        elif name.rpartition(":")[2] == "iq":
            # Of another namespace, or in one under a prefix: no server routes such a stanza.
            self.story.doubtful[request] += 1


def told(data: bytes) -> Story:
    """Return the requests in these bytes, which come after the header of a stream."""
    return _Teller().tell(data)
