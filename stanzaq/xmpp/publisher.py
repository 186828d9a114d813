"""Sends items over XMPP. Must not look into payloads."""

from collections.abc import Mapping
from xml.etree.ElementTree import Element

from stanzaq.account import Account
from stanzaq.transport import Content, Hints
from stanzaq.xmpp import stanzas
from stanzaq.xmpp.connection import Connection


class XmppSender:
    """The transport of a publisher with an XMPP account."""

    def __init__(self, account: Account) -> None:
        """Use an account."""
        self._connection = Connection(account)

    async def run(self) -> None:
        """Stay connected until `close`; raises StanzaqError if no further attempt can succeed."""
        await self._connection.run(self)

    async def publish(self, node: str, item: str, content: Content, headers: Mapping[str, str], hints: Hints) -> str:
        """Send an item until it is answered, and return its id. Raises StanzaqError if the service refuses it."""
        await self._connection.ask(f"publish to {node}", "set", stanzas.publish(node, item, content, headers, hints))
        return item

    async def close(self) -> None:
        """Leave."""
        await self._connection.close()

    async def connected(self) -> None:
        """Do nothing: a publisher needs no set-up on a new stream."""

    def message(self, message: Element) -> None:
        """Ignore messages: a publisher expects none."""
