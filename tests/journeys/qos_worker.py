"""A worker that is sent IQs instead of messages (urn:xmpp:qos). Knows the levels from outside; answers only when told."""

import asyncio
from dataclasses import dataclass, field
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

from slixmpp.xmlstream.stanzabase import StanzaBase

from tests.journeys.client import CLIENT, PUBSUB, STANZAS, Answer, Client, Delivery, _news, submitted
from tests.waiting import PATIENCE_SECONDS

QOS: Final = "urn:xmpp:qos"


@dataclass(frozen=True, slots=True)
class Asked:
    """An IQ that needs confirmation: `what` is `acknowledged`, `assured` or `deliver`."""

    what: str
    id: str
    sender: str
    message_id: str
    delivery: Delivery | None
    element: Element = field(compare=False)


class Worker(Client):
    """One connection whose confirmations the test sends."""

    def __init__(self, port: int, service: str, jid: str, password: str = "") -> None:
        """Choose an account, as for any client."""
        super().__init__(port, service, jid, password)
        self.asked: list[Asked] = []

    async def subscribe_at(self, node: str, qos: str, credit: int = 1, jid: str = "", batch: int = 1) -> Answer:
        """Subscribe at a level."""
        fields = {"pubsub#queue_requests": str(credit), "stanzaq#qos": qos, "stanzaq#batch": str(batch)}
        about = f"node={quoteattr(node)} jid={quoteattr(jid or self.jid)}"
        options = f"<options>{submitted(f'{PUBSUB}#subscribe_options', fields)}</options>"
        return await self.pubsub(f"<subscribe {about}/>{options}")

    async def next_asked(self, seconds: float = PATIENCE_SECONDS) -> Asked:
        """Take the first such IQ that nobody took, waiting for it."""
        async with asyncio.timeout(seconds):
            while not self.asked:
                self._changed.clear()
                await self._changed.wait()
        return self.asked.pop(0)

    def received(self, asked: Asked) -> None:
        """Confirm that an assured item has arrived, in the form of the document's examples (SX1)."""
        self.confirm(asked, f"<received msgId={quoteattr(asked.message_id)}/>")

    def confirm(self, asked: Asked, inside: str = "") -> None:
        """Answer with a result."""
        self.send(f"<iq type='result' to={quoteattr(asked.sender)} id={quoteattr(asked.id)}>{inside}</iq>")

    def refuse(self, asked: Asked, kind: str, condition: str) -> None:
        """Answer with an error."""
        error = f"<error type='{kind}'><{condition} xmlns='{STANZAS}'/></error>"
        self.send(f"<iq type='error' to={quoteattr(asked.sender)} id={quoteattr(asked.id)}>{error}</iq>")

    async def complete(self, asked: Asked) -> None:
        """Confirm a delivery to the end of its handshake."""
        if asked.what == "assured":
            self.received(asked)
            asked = await self.next_asked()
            assert asked.what == "deliver"
        self.confirm(asked)

    def _hear(self, stanza: StanzaBase) -> StanzaBase | None:
        iq = stanza.xml
        level = next(iter(iq), None)
        if (
            iq.tag != f"{{{CLIENT}}}iq"
            or iq.get("type") != "set"
            or level is None
            or not level.tag.startswith(f"{{{QOS}}}")
        ):
            return super()._hear(stanza)
        found = [news for message in level for news in _news(message) if isinstance(news, Delivery)]
        what, message_id = level.tag.rpartition("}")[2], level.get("msgId", "")
        delivery = found[0] if found else None
        self.asked.append(Asked(what, iq.get("id", ""), iq.get("from", ""), message_id, delivery, iq))
        self._changed.set()
        return None
