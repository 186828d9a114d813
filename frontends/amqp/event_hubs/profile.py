"""The profile's interface to a connection: its link attacher and its outgoing frames. Must not know what a link is for."""

from typing import Final

from frontends.amqp.auth.identity import Identity
from frontends.amqp.event_hubs.attach import HubLinkAttacher
from frontends.amqp.event_hubs.frames import add_missing_fields
from frontends.amqp.links.context import LinkContext
from frontends.amqp.protocol.grammar import HEADER_BYTES, Frames

_ANY: Final = 2**32 - 1


class Profile:
    """The profile of one connection."""

    def __init__(self, context: LinkContext, identity: Identity) -> None:
        """Start without a token."""
        self._outgoing = Frames(_ANY)
        self._headed = False
        self.attaching = HubLinkAttacher(context, identity)

    def rewrite(self, data: bytes) -> bytes:
        """Rewrite proton's output in the form that SDKs read."""
        header = b"" if self._headed else data[:HEADER_BYTES]
        self._headed = True
        return header + b"".join(map(add_missing_fields, self._outgoing.complete_frames(data[len(header) :])))
