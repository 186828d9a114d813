"""Parses the addresses and properties of an attach into options (E6 to E12, E26 to E28). Pure; must not know proton."""

import re
from collections.abc import Mapping
from typing import Any, Final

from broker.model.frozen import frozen
from broker.model.names import NODE_NAME_BYTES
from broker.model.nodes.groups import is_name
from broker.model.nodes.options import MAX_PARTITIONS
from broker.model.problems import MalformedRequest, Problem
from frontends.amqp.constants import EPOCH, GROUP, INFO, PARTITION

_URL: Final = re.compile(r"amqps?://[^/]*/?")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,3}", re.ASCII)
_EPOCH_MOST: Final = 2**63 - 1


@frozen
class NodeAddress:
    """A node, or its runtime information."""

    node: str
    info: bool


@frozen
class LinkOptions:
    """The options in the properties of a link."""

    partition: int | None
    group: str
    epoch: int | None


def address(text: str | None) -> NodeAddress:
    """Parse an address: a node's name, or a URL with one; raises MalformedRequest."""
    said = _URL.sub("", text or "", count=1).lstrip("/")
    info = said.endswith(INFO)
    node = said.removesuffix(INFO) if info else said
    if not node or len(node.encode()) > NODE_NAME_BYTES:
        raise MalformedRequest(Problem.NODE_REQUIRED, "the address must be the name of a node")
    return NodeAddress(node, info)


def parse_options(properties: Mapping[str, Any]) -> LinkOptions:
    """Parse the properties of a link; raises MalformedRequest."""
    group = properties.get(GROUP) or ""
    if not isinstance(group, str) or (group and not is_name(str(group))):
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{GROUP} must be a string without blanks")
    found = LinkOptions(_partition(properties.get(PARTITION)), str(group), epoch(properties, EPOCH))
    if found.epoch is not None and not found.group:
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"an epoch needs a group: name it by {GROUP}")
    return found


def _partition(said: object) -> int | None:
    if said is None:
        return None
    if not isinstance(said, str):
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{PARTITION} must be a symbol")
    return partition(str(said))


def partition(said: str) -> int:
    """Parse a partition's number; raises PARTITION_NOT_FOUND for one that no node can have."""
    if not _NUMBER.fullmatch(said) or int(said) >= MAX_PARTITIONS:
        raise MalformedRequest(Problem.PARTITION_NOT_FOUND, "the node has no such partition")
    return int(said)


def epoch(properties: Mapping[str, Any], name: str) -> int | None:
    """Parse the epoch in a link's properties, None without one; raises MalformedRequest."""
    said = properties.get(name)
    if said is None:
        return None
    # EX12: `long` in the first draft, `ulong` in the later one.
    if isinstance(said, bool) or not isinstance(said, int) or not 0 <= said <= _EPOCH_MOST:
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{name} must be a long of at least 0")
    return int(said)
