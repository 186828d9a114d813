"""A sender with the plugin in an ordinary slixmpp client. Knows how to get in without TLS; must not know the queue."""

import asyncio
from typing import Final

from slixmpp import ClientXMPP

from stanzaq.xep_qos import Outbox, XepQos
from tests.waiting import PATIENCE_SECONDS

FIRST_SECONDS: Final = 0.5
"""How soon it sends again: a journey has no time for 5 s."""


class Sender(ClientXMPP):
    """One connection."""

    def __init__(self, jid: str, password: str, outbox: Outbox | None = None) -> None:
        """Choose an account and a resource, or a host alone for an anonymous one."""
        unencrypted = {"feature_mechanisms": {"unencrypted_plain": True, "unencrypted_scram": True}}
        super().__init__(jid, password, plugin_config=unencrypted)
        self.enable_direct_tls = self.enable_starttls = False
        self.enable_plaintext = True
        self.register_plugin("xep_qos", {"first": FIRST_SECONDS, "outbox": outbox})
        plugin = self.get("xep_qos")
        assert isinstance(plugin, XepQos)
        self.qos = plugin

    async def open(self, port: int) -> None:
        """Connect."""
        entered = asyncio.ensure_future(self.wait_until("session_start", PATIENCE_SECONDS))
        # Slixmpp wants the handler in place before it connects.
        await asyncio.sleep(0)
        self.connect("127.0.0.1", port)
        await entered

    async def close(self) -> None:
        """Hang up in order."""
        if self.is_connected():
            await self.disconnect(wait=1.0)
        self.cancel_connection_attempt()
        if self._run_out_filters is not None:
            self._run_out_filters.cancel()
