"""Parses addresses of Event Hubs into a node, a partition and a group. Pure; must not know links."""

import re
from typing import Final

from broker.model.frozen import frozen
from broker.model.names import NODE_NAME_BYTES
from broker.model.nodes.groups import DEFAULT_GROUP, is_name
from broker.model.problems import MalformedRequest, Problem
from frontends.amqp.auth.shared_keys import path
from frontends.amqp.links import attach_options

_TARGET: Final = re.compile(r"(?P<node>.+?)(?:/Partitions/(?P<partition>[^/]*))?")
_SOURCE: Final = re.compile(r"(?P<node>.+)/ConsumerGroups/(?P<group>[^/]+)/Partitions/(?P<partition>[^/]*)")
_DEFAULT: Final = "$default"


@frozen
class HubAddress:
    """A node, possibly a partition and a consumer group; `path` is the whole address."""

    path: str
    node: str
    partition: int | None
    group: str = ""


def target(text: str | None) -> HubAddress:
    """Parse a producer's address: a hub, or `HUB/Partitions/N`; raises MalformedRequest."""
    return _read(_TARGET, path(text), "the address is HUB or HUB/Partitions/N")


def source(text: str | None) -> HubAddress:
    """Parse a consumer's address: `HUB/ConsumerGroups/GROUP/Partitions/N`; raises MalformedRequest."""
    return _read(_SOURCE, path(text), "the address is HUB/ConsumerGroups/GROUP/Partitions/N")


def _read(pattern: re.Pattern[str], text: str, forms: str) -> HubAddress:
    found = pattern.fullmatch(text)
    if found is None or len(found["node"].encode()) > NODE_NAME_BYTES:
        raise MalformedRequest(Problem.NODE_REQUIRED, forms)
    parts = found.groupdict()
    partition = parts["partition"]
    group = parts.get("group") or ""
    if group and not is_name(group):
        raise MalformedRequest(Problem.OPTIONS_INVALID, "the name of a consumer group has no blanks")
    return HubAddress(
        text,
        found["node"],
        None if partition is None else attach_options.partition(partition),
        # The default group of Event Hubs is the group of readers that name none.
        DEFAULT_GROUP if group.lower() == _DEFAULT else group,
    )
