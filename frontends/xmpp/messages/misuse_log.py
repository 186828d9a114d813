"""Events for an observer of the service (XEP-0337) about misuse of QoS, rate-limited. Pure; time is an argument."""

from typing import Final
from xml.etree.ElementTree import Element

from broker.model.names import Jid
from broker.model.problems import Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.xml.text import escape, moment

_EVERY_MS: Final = 1_000
"""The shortest time between two events: a flood of misuse must not become a flood of events."""


class EventLog:
    """The events of one frontend; without a reader it writes nothing."""

    def __init__(self, service: str, reader: Jid | None) -> None:
        """Send events to `reader` on behalf of `service`."""
        self._service = service
        self._reader = reader
        self._next_ms = 0
        self._suppressed = 0

    def misuse(self, request: Element, problem: Problem, detail: str, now_ms: int) -> bytes:
        """Write the event of a refused misuse; empty when too soon after the last one."""
        if self._reader is None:
            return b""
        if now_ms < self._next_ms:
            self._suppressed += 1
            return b""
        self._next_ms = now_ms + _EVERY_MS
        suppressed, self._suppressed = self._suppressed, 0
        return (
            f"<message from='{escape(self._service)}' to='{escape(self._reader)}'>"
            f"<log xmlns='{ns.EVENT_LOG}' timestamp='{moment(now_ms)}' type='Warning' id='{problem.value}'"
            f" object='{escape(self._service)}' subject='{escape(request.get('from', ''))}' facility='{ns.QOS}'>"
            f"<message>{escape(detail)}</message>"
            f"<tag name='suppressed' value='{suppressed}' type='xs:int'/></log></message>"
        ).encode()
