"""A plain XMPP client of the queue: one anonymous account, requests repeated until they are answered.

Knows slixmpp and IQs; must not know what a request means.
"""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

from slixmpp import ClientXMPP
from slixmpp.xmlstream.stanzabase import StanzaBase

from frontends.tools.demo import stanzas
from frontends.xmpp import namespaces as ns

ANSWER_SECONDS: Final = 2.0
"""A request is sent again after this time: its frontend may be dead."""

_TRIES: Final = 15
_ENTER_SECONDS: Final = 20.0
_IQ: Final = f"{{{ns.CLIENT}}}iq"
_MESSAGE: Final = f"{{{ns.CLIENT}}}message"


class Unanswered(Exception):  # noqa: N818  (named after what happened)
    """The service refused a request, or answered none of its attempts."""


class Client(ClientXMPP):
    """One connection to the XMPP server; `receive` gets each message of the service."""

    def __init__(self, domain: str, service: str, receive: Callable[[Element], None]) -> None:
        """Prepare an anonymous account of `domain`; must run inside the event loop."""
        unencrypted = {"feature_mechanisms": {"unencrypted_plain": True}}
        super().__init__(domain, "", plugin_config=unencrypted)
        self.enable_direct_tls = self.enable_starttls = False
        self.enable_plaintext = True
        self._service = service
        self._receive = receive
        self._numbers = count(1)
        # Slixmpp would add a handler for each pending request and try all of them on each stanza.
        self._answers: dict[str, asyncio.Future[Element]] = {}
        self.add_filter("in", self._take)

    async def enter(self, host: str, port: int) -> None:
        """Connect, log in, and send presence to the service (XEP-0254 §3: it watches presence)."""
        entered = asyncio.ensure_future(self.wait_until("session_start", _ENTER_SECONDS))
        # Slixmpp needs the handler in place before it connects.
        await asyncio.sleep(0)
        self.connect(host, port)
        await entered
        self.send_raw(f"<presence to={quoteattr(self._service)}/>")

    async def leave(self) -> None:
        """Log out."""
        await self.disconnect(wait=1.0)

    async def ask(self, kind: str, content: str) -> Element:
        """Send an IQ and return its answer; a repeat keeps the id, so that it takes effect once (Q27)."""
        name = f"q{next(self._numbers)}"
        stanza = f"<iq type='{kind}' to={quoteattr(self._service)} id='{name}'>{content}</iq>"
        try:
            for _ in range(_TRIES):
                answer: asyncio.Future[Element] = asyncio.get_running_loop().create_future()
                self._answers[name] = answer
                self.send_raw(stanza)
                await asyncio.wait([answer], timeout=ANSWER_SECONDS)
                if answer.done():
                    if not stanzas.may_pass(answer.result()):
                        return answer.result()
                    await asyncio.sleep(ANSWER_SECONDS)
        finally:
            self._answers.pop(name, None)
        msg = f"the service did not carry out: {stanza}"
        raise Unanswered(msg)

    async def demand(self, kind: str, content: str) -> Element:
        """Send an IQ and require a result."""
        reply = await self.ask(kind, content)
        if problem := stanzas.condition(reply):
            msg = f"the service answered {problem} to: {content}"
            raise Unanswered(msg)
        return reply

    def _take(self, stanza: StanzaBase) -> StanzaBase | None:
        element = stanza.xml
        if element.get("from") != self._service:
            return stanza
        if element.tag == _IQ:
            answer = self._answers.get(element.get("id", ""))
            if answer is not None and not answer.done():
                answer.set_result(element)
        elif element.tag == _MESSAGE:
            self._receive(element)
        return None
