"""The profile as a connection meets it: its frames on their way in and out, and its links. Must not know what a link is for."""

from collections.abc import Callable, Iterator
from typing import Final

from frontends.amqp.engine import FRAME_BYTES
from frontends.amqp.hubs.attaching import HubAttaching
from frontends.amqp.hubs.frames import Formats, Frames, widened
from frontends.amqp.hubs.words import BATCH
from frontends.amqp.shared import Shared

_ANY: Final = 2**32 - 1


class Profile:
    """Of one connection."""

    def __init__(
        self,
        shared: Shared,
        *,
        flush: Callable[[], None],
        held: Callable[[int], None],
        begun: Callable[[], int],
        known: Callable[[], None],
    ) -> None:
        """Begin with nobody; `known` hears when it is known who the peer is."""
        self._incoming = Frames(FRAME_BYTES)
        self._outgoing = Frames(_ANY)
        self._formats = Formats()
        self._format = 0
        self.attaching = HubAttaching(
            shared.core,
            shared.tides,
            shared.identity.keys,
            flush=flush,
            held=held,
            begun=begun,
            known=known,
            batched=lambda: self._format == BATCH,
        )

    def received(self, data: bytes) -> Iterator[bytes]:
        """Give frames one by one: what happens at one of them is of the message that it has a part of."""
        for frame in self._incoming.whole(data):
            self._format = self._formats.of(frame)
            yield frame

    def written(self, data: bytes) -> bytes:
        """Write what proton has written as SDKs read it."""
        return b"".join(map(widened, self._outgoing.whole(data)))
