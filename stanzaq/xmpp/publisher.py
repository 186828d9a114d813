"""Items to the service over XMPP. Must not know payloads but as content."""

from collections.abc import Mapping
from xml.etree.ElementTree import Element

from stanzaq.account import Account
from stanzaq.transport import Content
from stanzaq.xmpp import stanzas
from stanzaq.xmpp.connection import Connection
from stanzaq.xmpp.stanzas import Hints

__all__ = ["Hints", "XmppSender"]


class XmppSender:
    """The transport of a publisher that has an XMPP account."""

    def __init__(self, account: Account) -> None:
        """Use an account."""
        self._connection = Connection(account)

    async def run(self) -> None:
        """Stay connected until `close`; raises StanzaqError when that cannot be."""
        await self._connection.run(self)

    async def publish(self, node: str, item: str, content: Content, headers: Mapping[str, str], hints: Hints) -> str:
        """Send an item until it is answered; gives its id. Raises StanzaqError when the service refuses it."""
        await self._connection.ask(f"publish to {node}", "set", stanzas.publish(node, item, content, headers, hints))
        return item

    async def close(self) -> None:
        """Leave."""
        await self._connection.close()

    async def connected(self) -> None:
        """Nothing has to be done on a new stream."""

    def message(self, message: Element) -> None:
        """Nobody sends a publisher anything that it waits for."""
