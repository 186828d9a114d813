"""The profile as a connection meets it: its links, and its frames on their way out. Must not know what a link is for."""

from typing import Final

from frontends.amqp.auth.shared_keys import Keys
from frontends.amqp.event_hubs.attach import HubLinkAttacher
from frontends.amqp.event_hubs.frames import widened
from frontends.amqp.links.context import LinkContext
from frontends.amqp.protocol.grammar import HEADER_BYTES, Frames

_ANY: Final = 2**32 - 1


class Profile:
    """Of one connection."""

    def __init__(self, context: LinkContext, keys: Keys) -> None:
        """Begin with nobody."""
        self._outgoing = Frames(_ANY)
        self._headed = False
        self.attaching = HubLinkAttacher(context, keys)

    def written(self, data: bytes) -> bytes:
        """Write what proton has written as SDKs read it."""
        header = b"" if self._headed else data[:HEADER_BYTES]
        self._headed = True
        return header + b"".join(map(widened, self._outgoing.whole(data[len(header) :])))
