"""Sends items over HTTP. Must not look into payloads."""

import asyncio
from collections.abc import Mapping

from stanzaq.account import HttpAccount
from stanzaq.http import messages
from stanzaq.http.connection import Connection
from stanzaq.transport import Content, Hints


class HttpSender:
    """The transport of a publisher with an account of the RESTful Queue."""

    def __init__(self, account: HttpAccount) -> None:
        """Use an account."""
        self._connection = Connection(account)
        self._closed = asyncio.Event()

    async def run(self) -> None:
        """Wait for `close`: requests connect as needed."""
        await self._closed.wait()

    async def publish(self, node: str, item: str, content: Content, headers: Mapping[str, str], hints: Hints) -> str:
        """Send an item until it is answered, and return its id. Raises StanzaqError if the service refuses it."""
        body, traced = messages.batch(item, content, headers, hints)
        path = messages.batch_path(node)
        await self._connection.ask(f"publish to {node}", "POST", path, body, messages.refused_item, traced)
        return item

    async def close(self) -> None:
        """Disconnect."""
        self._closed.set()
        await self._connection.close()
