"""A receiver by the document and requirements S9-S11, SX8-SX10, in memory. Must not know a sender."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from tests.unit.xep_qos.stream import error, received, result

REMEMBERED: Final = 3600.0
REFUSED: Final = "{urn:x}refused"
"""A payload that is never accepted."""


@dataclass(slots=True)
class Receiver:
    """Counts what it delivered by payload text; it forgets stored and delivered messages after `REMEMBERED` seconds."""

    delivered: Counter[str] = field(default_factory=Counter)
    _held: dict[str, tuple[Element, float]] = field(default_factory=dict)
    _tombs: dict[str, tuple[bytes, float]] = field(default_factory=dict)

    def answer(self, request: Element, now: float) -> Element:
        """Run a request and answer it."""
        self._expire(now)
        element = request[0]
        msg_id = element.get("msgId", "")
        if element.tag.endswith("}acknowledged"):
            return self._deliver(request, element[0])
        if element.tag.endswith("}assured"):
            self._hold(msg_id, element[0], now)
            return received(request)
        if msg_id in self._tombs:
            return result(request)
        if msg_id not in self._held:
            return error(request, "cancel", "item-not-found")
        message, _ = self._held.pop(msg_id)
        answer = self._deliver(request, message)
        if answer.get("type") == "result":
            self._tombs[msg_id] = ET.tostring(message), now
        return answer

    def lose_held(self) -> None:
        """Lose stored messages, as one that keeps them in memory does when it restarts."""
        self._held.clear()

    def _hold(self, msg_id: str, message: Element, now: float) -> None:
        tomb = self._tombs.get(msg_id)
        if tomb is not None and tomb[0] == ET.tostring(message):
            return
        self._tombs.pop(msg_id, None)
        self._held.setdefault(msg_id, (message, now))

    def _deliver(self, request: Element, message: Element) -> Element:
        (payload,) = message
        if payload.tag == REFUSED:
            return error(request, "modify", "not-acceptable")
        self.delivered[payload.text or ""] += 1
        return result(request)

    def _expire(self, now: float) -> None:
        self._held = {name: kept for name, kept in self._held.items() if now - kept[1] <= REMEMBERED}
        self._tombs = {name: kept for name, kept in self._tombs.items() if now - kept[1] <= REMEMBERED}
