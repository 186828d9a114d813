"""What a member of a group owns of a node: renews it, and finds the locks that ended with a partition. Must not know handlers."""

import asyncio
import contextlib
import logging
import math
from collections.abc import Mapping
from typing import Final

from stanzaq.errors import StanzaqError
from stanzaq.transport.interface import Receiver
from stanzaq.xmpp import stanzas
from stanzaq.xmpp.connection import XmppConnection

log = logging.getLogger("stanzaq")

_RENEWALS: Final = 3
"""A lease lasts as long as a lock, and is renewed as often."""


class Membership:
    """The partitions of one node that the service assigns to this worker."""

    def __init__(
        self, node: str, connection: XmppConnection, receiver: Receiver, lock_seconds: Mapping[str, float]
    ) -> None:
        """Renew by a connection; a receiver has the locks. The lock times of nodes may change."""
        self._node = node
        self._connection = connection
        self._receiver = receiver
        self._lock_seconds = lock_seconds
        self._lost: set[int] = set()
        self._wakeup = asyncio.Event()

    def lose(self, partition: int) -> None:
        """Note that the worker has lost a partition; the service may have assigned it again meanwhile."""
        self._lost.add(partition)
        self._wakeup.set()

    async def renew(self) -> None:
        """Renew the leases until cancelled, and at once when a partition is lost."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._lock_seconds[self._node] / _RENEWALS):
                    await self._wakeup.wait()
            self._wakeup.clear()
            try:
                await self._renew()
            except StanzaqError as error:
                # The node is gone, or bars this worker: the next subscribe says so.
                log.warning("%s", error)

    async def _renew(self) -> None:
        """Renew the leases, and report the locks from before the loss of a partition as lost; raises StanzaqError."""
        lost, self._lost = self._lost, set()
        # Only locks known before the request: the answer may be older than those that come meanwhile.
        known = self._receiver.locks(self._node)
        ask = stanzas.renew_ownership(self._node)
        answer = await self._connection.ask(f"renew the partitions of {self._node}", "set", ask)
        fences = stanzas.read_owned(answer)
        for lock in known:
            # A node with one partition does not tell its number.
            partition = lock.partition or 0
            if partition in lost and lock.token < fences.get(partition, math.inf):
                self._receiver.lost(lock)
