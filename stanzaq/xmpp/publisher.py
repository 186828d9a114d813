"""Sends items over XMPP. Must not look into payloads."""

import time
from dataclasses import replace
from typing import Final
from xml.etree.ElementTree import Element

from stanzaq.account import Account
from stanzaq.errors import StanzaqError
from stanzaq.transport import Outgoing, Save
from stanzaq.xmpp import stanzas
from stanzaq.xmpp.connection import Connection

_REMEMBERED_SECONDS: Final = 3_600.0
"""For at least so long a service knows what it has delivered; half of what this one does, for clocks and queues on the way."""


class XmppSender:
    """The transport of a publisher with an XMPP account."""

    def __init__(self, account: Account) -> None:
        """Use an account."""
        self._connection = Connection(account)

    async def run(self) -> None:
        """Stay connected until `close`; raises StanzaqError if no further attempt can succeed."""
        await self._connection.run(self)

    async def publish(self, outgoing: Outgoing) -> None:
        """Send an item until it is answered. Raises StanzaqError if the service refuses it."""
        await self._connection.ask(f"publish to {outgoing.node}", "set", _publish(outgoing))

    async def publish_once(self, outgoing: Outgoing, save: Save) -> None:
        """Send an item as assured (`urn:xmpp:qos`); raises StanzaqError if it is refused, or cannot be told from a second one."""
        what = f"publish to {outgoing.node}"
        again = False
        while True:
            if not outgoing.since:
                await self._connection.ask(what, "set", stanzas.assured(outgoing.name, _publish(outgoing)))
                outgoing = replace(outgoing, since=time.time(), sender=self._connection.jid)
                await save(outgoing)
            try:
                await self._connection.ask(what, "set", stanzas.deliver(outgoing.name))
            except StanzaqError as error:
                if error.condition == "gone":
                    # What a missing node is otherwise; here that means that the service does not hold the item.
                    msg = f"cannot {what}: item-not-found (there is no such node)"
                    raise StanzaqError(msg, "item-not-found") from None
                if error.condition != "item-not-found":
                    raise
                old = time.time() - outgoing.since > _REMEMBERED_SECONDS
                if again or old or outgoing.sender != self._connection.jid:
                    msg = f"cannot tell whether {outgoing.item} is published: look for it in {outgoing.node}"
                    raise StanzaqError(msg, "item-not-found") from None
                # It was lost there, and would be known if it were delivered.
                again, outgoing = True, replace(outgoing, since=0.0)
            else:
                return

    async def close(self) -> None:
        """Leave."""
        await self._connection.close()

    async def connected(self) -> None:
        """Do nothing: a publisher needs no set-up on a new stream."""

    def message(self, message: Element) -> None:
        """Ignore messages: a publisher expects none."""


def _publish(outgoing: Outgoing) -> str:
    return stanzas.publish(outgoing.node, outgoing.item, outgoing.content, outgoing.headers, outgoing.hints)
