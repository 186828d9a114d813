"""What a fence compares: a token, and what it is about. Must not know any store."""

from dataclasses import dataclass
from typing import Final, Self
from uuid import UUID

from stanzaq.errors import Fenced

TABLE: Final = """\
CREATE TABLE IF NOT EXISTS stanzaq_fences (
    node text, name text, key text, token bigint NOT NULL,
    PRIMARY KEY (node, name, key)
)"""
"""The statement that creates the table of fences in PostgreSQL."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A job's token for one thing in a store: a `key` under a `name`, such as a row's in its table.

    Tokens of other nodes say nothing about this one's, so the node belongs to it. Its partition and its incarnation do not: a
    node's tokens are times of its Redis, so they grow also from one life of the node to the next, and where an item comes to
    another partition, a worker of the old one must still be refused.
    """

    node: str
    name: str
    key: str
    token: int

    @classmethod
    def make(cls, node: str, name: object, key: object, token: int) -> Self:
        """Check what a program has named. Raises TypeError, and ValueError without a token."""
        if not (isinstance(name, str) and isinstance(key, str | int | UUID)):
            msg = (
                f"fence(…, {name!r}, {key!r}): name what is written by a str, and a key that is a str, an int or a UUID"
            )
            raise TypeError(msg)
        if token <= 0:
            msg = f"the job of {node} has no token, so there is nothing to compare: only a delivered item has one"
            raise ValueError(msg)
        return cls(node, name, str(key), token)

    def refusal(self) -> Fenced:
        """Return the exception for a store that has seen a larger token."""
        refused = f"{self.name} {self.key} is refused under the token {self.token}"
        return Fenced(f"{refused}: a job of {self.node} with a newer lock has been here")
