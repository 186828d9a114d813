"""Ownership of partitions over XMPP (E26 to E29): the options of a subscription, and the notices to owners.

Must not know how a subscription is made, or when owners are notified.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from broker.model.frozen import frozen
from broker.model.items.items import Owned, OwnershipGained, OwnershipLost
from broker.model.nodes.groups import is_name
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import OwnershipsRenewed, Subscribed
from frontends.xmpp import namespaces as ns
from frontends.xmpp.pubsub import attributes
from frontends.xmpp.xml import forms
from frontends.xmpp.xml.text import escape, moment

PARTITION: Final = "stanzaq#partition"
GROUP: Final = "stanzaq#group"
EPOCH: Final = "stanzaq#epoch"
FENCE: Final = "stanzaq#fence"
FIELDS: Final = frozenset({PARTITION, GROUP, EPOCH})
"""The options that a subscriber may set."""

MOST_EPOCH: Final = 2**63 - 1


@frozen
class OwnershipRequest:
    """The ownership that a subscription requests; None and empty where it says nothing."""

    partitions: tuple[int, ...] = ()
    group: str = ""
    epoch: int | None = None


def parse_partitions(fields: Mapping[str, tuple[str, ...]]) -> OwnershipRequest:
    """Parse which partitions a subscription requests."""
    partitions = _partitions(fields[PARTITION]) if PARTITION in fields else ()
    group = _read_one(fields[GROUP], GROUP) if GROUP in fields else ""
    if GROUP in fields and not is_name(group):
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{GROUP} must be a name without blanks")
    if EPOCH not in fields:
        return OwnershipRequest(partitions, group)
    if not partitions:
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{EPOCH} needs a partition: name it with {PARTITION}")
    epoch = attributes.number_of(_read_one(fields[EPOCH], EPOCH))
    if epoch is None or epoch > MOST_EPOCH:
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{EPOCH} must be a whole number from 0 to {MOST_EPOCH}")
    return OwnershipRequest(partitions, group, epoch)


def write_granted(subscribed: Subscribed) -> Iterator[forms.Field]:
    """Write a subscription's ownership as fields: epochs and fences in the order of the partitions."""
    if subscribed.group:
        yield forms.Field(GROUP, (subscribed.group,))
        yield forms.Field(PARTITION, tuple(str(owned.partition) for owned in subscribed.owned))
        yield forms.Field(EPOCH, tuple(str(owned.epoch) for owned in subscribed.owned))
        yield forms.Field(FENCE, tuple(str(owned.fence) for owned in subscribed.owned))


def ownerships_renewed(node: str, renewed: OwnershipsRenewed) -> bytes:
    """Write the answer to an owner's heartbeat: everything it owns."""
    inside = "".join(_write_owned(node, owned) for owned in renewed.owned)
    return f"<renew xmlns='{ns.STANZAQ}' node='{escape(node)}'>{inside}</renew>".encode()


def write_notice(notice: OwnershipGained | OwnershipLost) -> str:
    """Write a notice to an owner."""
    if isinstance(notice, OwnershipGained):
        return _write_owned(notice.node, notice.owned)
    return f"<lost {_write_attributes(notice.node, notice)} reason='{notice.reason}'/>"


def _write_owned(node: str, owned: Owned) -> str:
    return f"<owned {_write_attributes(node, owned)} expires='{moment(owned.until_ms)}' credit='{owned.credit}'/>"


def _write_attributes(node: str, what: Owned | OwnershipLost) -> str:
    return (
        f"xmlns='{ns.STANZAQ}' node='{escape(node)}' partition='{what.partition}' group='{escape(what.group)}'"
        f" epoch='{what.epoch}' fence='{what.fence}'"
    )


def _partitions(values: tuple[str, ...]) -> tuple[int, ...]:
    if not values:
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{PARTITION} must have partition numbers, each as a value")
    return tuple(sorted(set(map(attributes.partition_number, values))))


def _read_one(values: tuple[str, ...], name: str) -> str:
    if len(values) != 1:
        raise MalformedRequest(Problem.OPTIONS_INVALID, f"{name} must have one value")
    return values[0]
