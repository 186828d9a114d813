"""The profile as a connection meets it: its links, and its frames on their way out. Must not know what a link is for."""

from collections.abc import Callable
from typing import Final

from frontends.amqp.event_hubs.attach import HubLinkAttacher
from frontends.amqp.event_hubs.frames import widened
from frontends.amqp.protocol.grammar import HEADER_BYTES, Frames
from frontends.amqp.server_state import ServerState

_ANY: Final = 2**32 - 1


class Profile:
    """Of one connection."""

    def __init__(  # noqa: PLR0913  (what links work with)
        self,
        shared: ServerState,
        *,
        flush: Callable[[], None],
        held: Callable[[int], None],
        begun: Callable[[], int],
        known: Callable[[], None],
        batched: Callable[[], bool],
    ) -> None:
        """Begin with nobody; `known` hears when it is known who the peer is, `batched` tells whether what arrives is a batch."""
        self._outgoing = Frames(_ANY)
        self._headed = False
        self.attaching = HubLinkAttacher(
            shared.core,
            shared.tails,
            shared.identity.keys,
            flush=flush,
            held=held,
            begun=begun,
            known=known,
            batched=batched,
        )

    def written(self, data: bytes) -> bytes:
        """Write what proton has written as SDKs read it."""
        header = b"" if self._headed else data[:HEADER_BYTES]
        self._headed = True
        return header + b"".join(map(widened, self._outgoing.whole(data[len(header) :])))
