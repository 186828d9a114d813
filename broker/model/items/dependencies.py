"""Which items an item waits for, its parents: as a publisher names them, and as an owner sees them. Values only."""

import json
import re
from collections.abc import Iterable
from typing import Any, Final, Self
from urllib.parse import quote, unquote

from broker.model.frozen import frozen
from broker.model.names import ITEM_ID_BYTES, NODE_NAME_BYTES
from broker.model.problems import MalformedRequest, Problem

MOST_PARENTS: Final = 100

NAMES_BYTES: Final = 16_384
"""The longest list of parents: operations rewrite their record with each end."""

RESULT_BYTES: Final = 1_024
"""The largest result of a parent that its dependents get."""

_LAST_SEQUENCE: Final = 2**64 - 1

_ESCAPES: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_RESERVED: Final = str.maketrans({char: quote(char) for char in "%# \t\r\n"})


@frozen
class Parent:
    """An item that another one waits for; `node` is empty for the other one's own node."""

    item_id: str
    node: str = ""

    def __str__(self) -> str:
        """Return `ID` or `NODE#ID`; blanks, `#` and `%` in a name are percent-encoded."""
        item = self.item_id.translate(_RESERVED)
        return f"{self.node.translate(_RESERVED)}#{item}" if self.node else item

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `str` wrote; raises MalformedRequest."""
        node, mark, item = text.rpartition("#")
        try:
            found = cls(unquote(item, errors="strict"), unquote(node, errors="strict"))
        except UnicodeDecodeError:
            found = None
        if found is None or "#" in node or _ESCAPES.search(text) or not item or (mark and not node):
            said = f"{text[:80]!a} names no item to wait for: give ID or NODE#ID, with %20, %23 and %25 for blanks, # and %"
            raise MalformedRequest(Problem.BAD_REQUEST, said)
        if len(found.item_id.encode()) > ITEM_ID_BYTES or len(found.node.encode()) > NODE_NAME_BYTES:
            raise MalformedRequest(Problem.BAD_REQUEST, "an item to wait for has a name that none can have")
        return found


@frozen
class Dependencies:
    """The parents of an item. With `regardless` it goes out however they end; else all are acknowledged, or it dies."""

    parents: tuple[Parent, ...] = ()
    regardless: bool = False

    def __bool__(self) -> bool:
        """Return whether the item waits for others."""
        return bool(self.parents)

    @classmethod
    def parse_names(cls, text: str, *, regardless: bool) -> Self:
        """Read a client's names of parents, with blanks between them; raises MalformedRequest."""
        if len(text.encode()) > NAMES_BYTES:
            raise MalformedRequest(Problem.BAD_REQUEST, f"after has at most {NAMES_BYTES} bytes")
        parents = tuple(map(Parent.read, text.split()))
        if len(parents) > MOST_PARENTS:
            raise MalformedRequest(Problem.BAD_REQUEST, f"an item waits for at most {MOST_PARENTS} others")
        if len(set(parents)) < len(parents):
            raise MalformedRequest(Problem.BAD_REQUEST, "an item to wait for is named twice")
        if regardless and not parents:
            raise MalformedRequest(
                Problem.BAD_REQUEST, "regardless says how to wait for the items in after, which names none"
            )
        return cls(parents, regardless)

    def __str__(self) -> str:
        """Return them as in records: one word, empty without parents."""
        return (
            quote(" ".join(["regardless" if self.regardless else "all", *map(str, self.parents)]), safe="")
            if self
            else ""
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote."""
        how, *named = unquote(text).split(" ") if text else [""]
        return cls(tuple(map(Parent.read, named)), how == "regardless")


NO_DEPENDENCIES: Final = Dependencies()


@frozen
class ParentState:
    """A parent of a waiting item: `awaited`, or how it has ended; empty while the publish of the waiting item is not finished.

    `life` is the incarnation of its node, `partition` and `token` are where its own partition knows who waits.
    """

    item_id: str
    node: str
    life: str
    state: str
    partition: int | None = None
    token: str = ""

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.state not in {"", "awaited"}

    def to_json(self) -> dict[str, str]:
        """Return it for JSON."""
        said = {"item": self.item_id, "state": self.state or "unknown"}
        return said | ({"node": self.node} if self.node else {})


@frozen
class Dependent:
    """An item that waits for another, in `node`: a list of that node's items which goes on from `scan` begins with it."""

    node: str
    scan: str

    @classmethod
    def read(cls, reference: str) -> Self:
        """Read a reference, as operations keep it (lua/lib/outbox/awaited.lua)."""
        _life, partition, position, _index, node = reference.split("/", 4)
        ms, sequence = map(int, position.split("-"))
        before = f"{ms}-{sequence - 1}" if sequence else f"{ms - 1}-{_LAST_SEQUENCE}"
        return cls(node, f"{partition} {before}")


def record(parents: Iterable[ParentState], *, regardless: bool, once: str = "") -> str:
    """Return the record of a new item that waits, as operations keep it (lua/lib/outbox/dependents.lua).

    `once` is by what a repeat of its publish is recognised.
    """
    told = [{"node": each.node, "life": each.life, "item": each.item_id, "state": ""} for each in parents]
    return json.dumps(
        {"regardless": regardless, "once": once, "parents": told}, ensure_ascii=False, separators=(",", ":")
    )


def read_record(text: bytes | None = None) -> tuple[ParentState, ...]:
    """Read the record of an item that waits; without one there are no parents."""
    return tuple(map(_parent, json.loads(text)["parents"])) if text else ()


def _parent(parent: dict[str, Any]) -> ParentState:
    named = (parent["item"], parent["node"], parent["life"], parent["state"])
    return ParentState(*named, parent.get("partition"), parent.get("token", ""))
