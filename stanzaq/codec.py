"""The hook for payloads on their way: what a program's codec does with them. Must not know how any codec works."""

from collections.abc import Collection
from typing import Final, Protocol

from stanzaq.transport.interface import Content

JOSE: Final = "application/jose"
"""The media type of an encrypted payload."""


class Codec(Protocol):
    """Changes payloads and results before they leave the program, and back: encrypts them, say. Headers stay as they are."""

    def encode(self, content: Content, node: str) -> Content:
        """Return what is sent to a node, or as the result of one of its items; raises TypeError or ValueError."""

    def decode(self, content: Content, nodes: Collection[str]) -> Content:
        """Return what `encode` was given for one of these nodes; raises Reject, which makes a dead letter of the item.

        They are the node of the item, and those where it died or from which it was moved. The result of an item that another one
        waited for may come without its type, which is then empty; so is that of what this returns if it cannot tell either.
        """


class _Plain:
    """Leaves payloads as they are."""

    def encode(self, content: Content, _node: str) -> Content:
        return content

    def decode(self, content: Content, _nodes: Collection[str]) -> Content:
        return content


PLAIN: Final[Codec] = _Plain()
"""The codec of programs that have none."""
