"""Loads of messages at each level of `urn:xmpp:qos`, from a sender to workers that acknowledge. Knows stanzas as bytes.

Must not know rows or processes.
"""

import re
import time
from dataclasses import dataclass
from typing import Final

from bench.doors.load import PAYLOAD, Jobs
from frontends.xmpp import namespaces as ns

PLAIN: Final = "plain"
ACKNOWLEDGED: Final = "acknowledged"
ASSURED: Final = "assured"
LEVELS: Final = (PLAIN, ACKNOWLEDGED, ASSURED)

_STANZA: Final = re.compile(rb"<(?:iq|message|presence) ([^>]*)>")
_HELD: Final = re.compile(rb"\bid='held(\d+)'")


@dataclass(frozen=True, slots=True)
class _Said:
    """The stanzas of a sender for one message, with placeholders for its number; `second` follows the answer to the first."""

    first: bytes
    second: bytes = b""


def _write_stanzas(level: str, to: str) -> _Said:
    """Return the stanzas of a level."""
    if level == PLAIN:
        return _Said(f"<message to='{to}' id='%(n)d'>{PAYLOAD}</message>".encode())
    message = f"<message xmlns='{ns.CLIENT}' id='%(n)d'>{PAYLOAD}</message>"
    if level == ACKNOWLEDGED:
        return _Said(_iq(to, "done", f"<acknowledged xmlns='{ns.QOS}'>{message}</acknowledged>"))
    return _Said(
        _iq(to, "held", f"<assured xmlns='{ns.QOS}' msgId='m%(n)d'>{message}</assured>"),
        _iq(to, "done", f"<deliver xmlns='{ns.QOS}' msgId='m%(n)d'/>"),
    )


def _iq(to: str, name: str, content: str) -> bytes:
    return f"<iq type='set' to='{to}' id='{name}%(n)d'>{content}</iq>".encode()


class Messages(Jobs):
    """Messages to the node named after their level. A message is done when its item and all its requests are."""

    def __init__(self, service: str, node: str) -> None:
        """Prepare; `open` connects."""
        super().__init__(service, node)
        self._said = _write_stanzas(node, f"{node}@{service}")
        # A plain message gets no answer.
        self._waits_for_answers = node != PLAIN
        self._confirmed = 0
        self._acknowledged = 0
        self._both = 0
        self.stanzas = 0
        """How many stanzas the sender has written and read."""

    answers = _STANZA

    def _begin(self, number: int) -> None:
        self._sent[number] = time.perf_counter()
        self._say(self._said.first, number)

    def _say(self, stanza: bytes, number: int) -> None:
        self.stanzas += 1
        self._publisher.write(stanza % {b"n": number})

    def _on_answer(self, answer: bytes) -> None:
        self.stanzas += 1
        self.loop.check(answer)
        held = _HELD.search(answer)
        if held is not None:
            self._say(self._said.second, int(held[1]))
        else:
            self._confirmed += 1
            self._count()

    def _on_done(self) -> None:
        self._acknowledged += 1
        self._count()

    def _count(self) -> None:
        """End as many messages as have both halves; a rate need not know which."""
        both = min(self._acknowledged, self._confirmed) if self._waits_for_answers else self._acknowledged
        if both > self._both:
            self._both = both
            self.loop.end()
