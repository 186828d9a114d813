"""The table of a node's configuration fields and their values. Pure; must not know forms, Redis or stanzas.

Forms, stored records and documentation are made from `OPTIONS`.
"""

import hashlib
from dataclasses import field
from enum import Enum
from typing import Final

from broker.model.frozen import frozen
from broker.model.items.durability import Durability
from broker.model.names import NODE_NAME_BYTES
from broker.model.nodes import destinations
from broker.model.nodes.fields import (
    Decimal,
    Group,
    Option,
    Rate,
    Text,
    Weights,
    Whole,
    Words,
    boolean,
    decimal,
    rate_rule,
    values,
)
from broker.model.nodes.tree import MAX_CHILDREN, Association, NodeType

_DEAD: Final = f"/{destinations.DEAD}"
MAX_ITEMS: Final = 1_000_000
MAX_PAYLOAD_BYTES: Final = 262_144
MAX_CREDIT: Final = 1_000
STREAM_CREDIT: Final = 100
"""The default credit of a log reader in each partition."""
MAX_LOCK_SECONDS: Final = 43_200
MAX_RETRY_SECONDS: Final = 7 * 86_400
MAX_RATE: Final = 1_000_000
MAX_WEIGHTS: Final = 1_000
MAX_WEIGHTS_BYTES: Final = 65_536
MAX_PARTITIONS: Final = 1_024
MAX_RESULT_SECONDS: Final = 30 * 86_400
MAX_RETENTION_SECONDS: Final = 10 * 365 * 86_400
MAX_RETENTION_BYTES: Final = 2**40
JOURNALED: Final = ("publisher", "key")
"""What the journal may name beside an item."""


class Dedupe(Enum):
    """What a publish with a known item id does (X1)."""

    OVERWRITE = "overwrite"
    IGNORE = "ignore"


class WhenFull(Enum):
    """What a publish to a full node does (P17, PX4)."""

    REJECT = "reject"
    RETRACT_OLDEST = "retract-oldest"
    DEAD_LETTER_OLDEST = "dead-letter-oldest"


class AccessModel(Enum):
    """Who may subscribe."""

    OPEN = "open"
    AUTHORIZE = "authorize"
    WHITELIST = "whitelist"


class PublishModel(Enum):
    """Who may publish."""

    PUBLISHERS = "publishers"
    SUBSCRIBERS = "subscribers"
    OPEN = "open"


class NodeState(Enum):
    """Whether a node takes new items and hands items out: paused ones only take, draining ones only hand out."""

    RUNNING = "running"
    PAUSED = "paused"
    DRAINING = "draining"


class Fair(Enum):
    """Whose items dispatch takes in turns: group keys or publishers are its tenants."""

    NONE = "none"
    KEY = "key"
    PUBLISHER = "publisher"


@frozen
class NodeConfig:
    """All configuration of a node; durations in seconds as in their options, sizes in bytes."""

    queueing: bool = True
    title: str = ""
    description: str = ""
    type: str = ""
    lock_seconds: int = 60
    max_deliveries: int = 20
    retry_delay: float = 0.0
    retry_backoff: float = 1.0
    retry_limit: float = 3600.0
    retry_jitter: float = 0.0
    rate: str = ""
    rate_burst: int = 0
    max_in_flight: int = 0
    rate_by_key: str = ""
    max_in_flight_by_key: int = 0
    publish_rate: str = ""
    fair: Fair = Fair.NONE
    fair_weights: str = ""
    dead_letter_node: str | None = None
    dedupe: Dedupe = Dedupe.OVERWRITE
    dedupe_seconds: int = 600
    confirm: Durability = Durability.STORED
    max_items: int = MAX_ITEMS
    node_full: WhenFull = WhenFull.REJECT
    access_model: AccessModel = AccessModel.OPEN
    publish_model: PublishModel = PublishModel.PUBLISHERS
    max_payload_bytes: int = MAX_PAYLOAD_BYTES
    partitions: int = 1
    ordered: bool = False
    retention_seconds: int = 0
    retention_items: int = 0
    retention_bytes: int = 0
    result_seconds: int = 3600
    journal: str = ""
    groups: str = ""
    multi_subscribe: bool = False
    notify_delete: bool = True
    notify_retract: bool = True
    notify_config: bool = False
    state: NodeState = NodeState.RUNNING
    node_type: NodeType = NodeType.LEAF
    children_max: int = MAX_CHILDREN
    association: Association = Association.OWNERS
    association_whitelist: str = ""
    collects: bool = field(init=False, compare=False)
    """The node is a collection: it contains nodes and no items (H2)."""

    def __post_init__(self) -> None:
        """Compute `collects` once: every command reads it."""
        object.__setattr__(self, "collects", self.node_type is NodeType.COLLECTION)

    @property
    def keep_items(self) -> int:
        """How many finished entries are kept at most, 0 for no limit of this kind.

        A log without any limit set keeps as many as XEP-0060's max_items says.
        """
        limits = self.retention_seconds + self.retention_items + self.retention_bytes
        return self.retention_items if self.queueing or limits else self.max_items

    @property
    def retry_rule(self) -> str:
        """How long an item that came back rests, as operations read it: two times in ms, factor, share; empty for no rest."""
        if not self.retry_delay:
            return ""
        first, longest = round(self.retry_delay * 1000), round(self.retry_limit * 1000)
        return f"{first} {longest} {decimal(self.retry_backoff)} {decimal(self.retry_jitter)}"

    @property
    def limits(self) -> str:
        """How much is handed out at most, as operations read it: items in flight, and a rate; empty for no limit."""
        if not (self.rate or self.max_in_flight):
            return ""
        return f"{self.max_in_flight} {rate_rule(self.rate, self.rate_burst)}"

    @property
    def limits_by_key(self) -> str:
        """The same for each group key."""
        if not (self.rate_by_key or self.max_in_flight_by_key):
            return ""
        return f"{self.max_in_flight_by_key} {rate_rule(self.rate_by_key)}"

    @property
    def fair_tenants(self) -> str:
        """Whose items are taken in turns, as operations read it; empty for nobody's."""
        return "" if self.fair is Fair.NONE else self.fair.value

    @property
    def weights(self) -> tuple[tuple[str, str], ...]:
        """The weights of tenants in their turns; a tenant without one has 1."""
        found = (line.rpartition("=") for line in self.fair_weights.split("\n") if line)
        return tuple((tenant, weight) for tenant, _, weight in found) if self.fair_tenants else ()

    def kept_by_partitions(self, node: str) -> dict[str, str]:
        """Return what each partition of `node` keeps, by its name in `lua/lib/options.lua`; empty for the default."""
        usual = NodeConfig().partition_values(node)
        return {name: "" if value == usual[name] else value for name, value in self.partition_values(node).items()}

    def partition_values(self, node: str) -> dict[str, str]:
        """Return the options that partitions of `node` know, as they read them."""
        return {
            "dead_letters": "1" if self.dead_letters_of(node) else "0",
            "partitions": str(0 if self.collects else self.partitions),
            "ordered": f"{self.ordered:d}",
            "queueing": f"{self.queueing:d}",
            "keep_ms": str(self.retention_seconds * 1000),
            "keep_items": str(self.keep_items),
            "keep_bytes": str(self.retention_bytes),
            "paused": f"{self.state is NodeState.PAUSED:d}",
            "retry_delay": self.retry_rule,
            "limits": self.limits,
            "by_key": self.limits_by_key,
            "result_ms": str(self.result_seconds * 1000),
            "fair": self.fair_tenants,
            "journal": self.journal,
        }

    @property
    def needs_owners(self) -> bool:
        """Whether the node is a queue of several partitions, each of which is worked by its owner."""
        return self.queueing and self.partitions > 1

    def admits(self, group: str) -> bool:
        """Return whether a consumer group is allowed; without a list any is (E26)."""
        return not self.groups.strip() or group in self.groups.split()

    def dead_letters_of(self, node: str) -> str | None:
        """Return the node for the dead letters of `node`; None when there is none, as for a log."""
        if not self.queueing or self.collects:
            return None
        return _dead_letters(node) if self.dead_letter_node is None else self.dead_letter_node or None


def _dead_letters(node: str) -> str:
    """Return the default name of a node for dead letters; a name that is too long is cut and gets a digest."""
    name = f"{node}{_DEAD}"
    if len(name.encode()) <= NODE_NAME_BYTES:
        return name
    end = f"~{hashlib.blake2b(node.encode(), digest_size=8).hexdigest()}{_DEAD}"
    return node.encode()[: NODE_NAME_BYTES - len(end)].decode(errors="ignore") + end


OPTIONS: Final = (
    Option(
        "{urn:xmpp:pubsub:queueing:0}enabled",
        "queueing",
        "boolean",
        Group.IDENTITY,
        "Each item goes to one subscriber (a queue)",
        boolean,
        aliases=("pubsub#queueing",),
    ),
    Option("pubsub#title", "title", "text-single", Group.IDENTITY, "A short name for people", Text(1024), on=None),
    Option(
        "pubsub#description", "description", "text-single", Group.IDENTITY, "What the node is for", Text(4096), on=None
    ),
    Option(
        "pubsub#type", "type", "text-single", Group.IDENTITY, "What the payloads are, by their namespace", Text(1024)
    ),
    Option(
        "stanzaq#lock_seconds",
        "lock_seconds",
        "text-single",
        Group.DELIVERY,
        "Seconds that a worker has for an item",
        Whole(1, MAX_LOCK_SECONDS),
    ),
    Option(
        "stanzaq#max_deliveries",
        "max_deliveries",
        "text-single",
        Group.RETRIES,
        "Deliveries of an item before it is a dead letter (0: no limit)",
        Whole(0, 1_000),
    ),
    Option(
        "stanzaq#retry_delay",
        "retry_delay",
        "text-single",
        Group.RETRIES,
        "Seconds that an item rests before its second attempt (0: none)",
        Decimal(0, MAX_RETRY_SECONDS),
    ),
    Option(
        "stanzaq#retry_backoff",
        "retry_backoff",
        "text-single",
        Group.RETRIES,
        "Factor by which each further rest is longer",
        Decimal(1, 100),
    ),
    Option(
        "stanzaq#retry_limit",
        "retry_limit",
        "text-single",
        Group.RETRIES,
        "Longest rest in seconds",
        Decimal(0, MAX_RETRY_SECONDS),
    ),
    Option(
        "stanzaq#retry_jitter",
        "retry_jitter",
        "text-single",
        Group.RETRIES,
        "Share of a rest by which chance may shorten it (0 to 1)",
        Decimal(0, 1),
    ),
    Option(
        "stanzaq#rate",
        "rate",
        "text-single",
        Group.LIMITS,
        "Most items handed out in a second, minute or hour, as 100/s (empty: no limit)",
        Rate(MAX_RATE),
        of_queues=True,
        counted=True,
    ),
    Option(
        "stanzaq#rate_burst",
        "rate_burst",
        "text-single",
        Group.LIMITS,
        "Items of this rate that may be handed out at once (0: those of a second, and one)",
        Whole(0, MAX_RATE),
    ),
    Option(
        "stanzaq#max_in_flight",
        "max_in_flight",
        "text-single",
        Group.LIMITS,
        "Most items that all workers together hold (0: no limit)",
        Whole(0, MAX_ITEMS),
        of_queues=True,
        counted=True,
    ),
    Option(
        "stanzaq#rate_by_key",
        "rate_by_key",
        "text-single",
        Group.LIMITS,
        "Most items of one group key handed out in a second, minute or hour, as 100/s (empty: no limit)",
        Rate(MAX_RATE),
        of_queues=True,
    ),
    Option(
        "stanzaq#max_in_flight_by_key",
        "max_in_flight_by_key",
        "text-single",
        Group.LIMITS,
        "Most items of one group key that all workers together hold (0: no limit)",
        Whole(0, MAX_ITEMS),
        of_queues=True,
    ),
    Option(
        "stanzaq#publish_rate",
        "publish_rate",
        "text-single",
        Group.LIMITS,
        "Most items that one publisher publishes in a second, minute or hour, as 100/s (empty: no limit)",
        Rate(MAX_RATE),
        counted=True,
    ),
    Option(
        "stanzaq#fair",
        "fair",
        "list-single",
        Group.DELIVERY,
        "Whose items go out in turns: those of each group key, or of each publisher",
        Fair,
        values(Fair),
        of_queues=True,
    ),
    Option(
        "stanzaq#fair_weights",
        "fair_weights",
        "text-multi",
        Group.DELIVERY,
        "Weights of keys or publishers in these turns, as KEY=3 (others have 1)",
        Weights(MAX_WEIGHTS, MAX_WEIGHTS_BYTES),
        many=True,
    ),
    Option(
        "stanzaq#dead_letter_node",
        "dead_letter_node",
        "text-single",
        Group.RETRIES,
        "Node for dead letters (empty: items are tried for ever)",
        Text(1023),
    ),
    Option(
        "stanzaq#dedupe",
        "dedupe",
        "list-single",
        Group.DELIVERY,
        "What a repeated item id does",
        Dedupe,
        values(Dedupe),
    ),
    Option(
        "stanzaq#dedupe_seconds",
        "dedupe_seconds",
        "text-single",
        Group.DELIVERY,
        "Seconds for which repeated ids are ignored (with dedupe ignore)",
        Whole(1, 604_800),
    ),
    Option(
        "stanzaq#confirm",
        "confirm",
        "list-single",
        Group.DELIVERY,
        "Where an item is before its publish succeeds: in Redis, also on its disk, or also in replicas",
        Durability,
        values(Durability),
    ),
    Option(
        "pubsub#max_items",
        "max_items",
        "text-single",
        Group.LIMITS,
        "Most items that the node holds",
        Whole(1, MAX_ITEMS, ("max",)),
    ),
    Option(
        "pubsub#publish_node_full",
        "node_full",
        "list-single",
        Group.LIMITS,
        "What a publish to a full node does",
        WhenFull,
        values(WhenFull),
        aliases=("pubsub#publish_full_node",),
    ),
    Option(
        "pubsub#access_model",
        "access_model",
        "list-single",
        Group.ACCESS,
        "Who may subscribe",
        AccessModel,
        values(AccessModel),
        on=None,
    ),
    Option(
        "pubsub#publish_model",
        "publish_model",
        "list-single",
        Group.ACCESS,
        "Who may publish",
        PublishModel,
        values(PublishModel),
    ),
    Option(
        "pubsub#max_payload_size",
        "max_payload_bytes",
        "text-single",
        Group.LIMITS,
        "Largest payload in bytes",
        Whole(1, MAX_PAYLOAD_BYTES),
    ),
    Option(
        "stanzaq#partitions",
        "partitions",
        "text-single",
        Group.PARTITIONS,
        "Partitions that the items are spread over (chosen when the node is created)",
        Whole(1, MAX_PARTITIONS),
    ),
    Option(
        "stanzaq#ordered",
        "ordered",
        "boolean",
        Group.DELIVERY,
        "Items of one group key are worked on one after another",
        boolean,
    ),
    Option(
        "stanzaq#retention_seconds",
        "retention_seconds",
        "text-single",
        Group.RETENTION,
        "Seconds for which items stay readable that are done with (0: no limit)",
        Whole(0, MAX_RETENTION_SECONDS),
    ),
    Option(
        "stanzaq#retention_items",
        "retention_items",
        "text-single",
        Group.RETENTION,
        "Most of these that each partition keeps (0: no limit)",
        Whole(0, MAX_ITEMS),
    ),
    Option(
        "stanzaq#retention_bytes",
        "retention_bytes",
        "text-single",
        Group.RETENTION,
        "Most bytes of these that each partition keeps (0: no limit)",
        Whole(0, MAX_RETENTION_BYTES),
    ),
    Option(
        "stanzaq#result_seconds",
        "result_seconds",
        "text-single",
        Group.RETENTION,
        "Seconds for which the end of an item stays readable, if its publisher asked for that (0: it is only told)",
        Whole(0, MAX_RESULT_SECONDS),
    ),
    Option(
        "stanzaq#journal",
        "journal",
        "text-single",
        Group.PARTITIONS,
        "What the journal names beside an item: publisher, key, or both with a blank between (empty: neither)",
        Words(JOURNALED),
        of_queues=True,
    ),
    Option(
        "stanzaq#groups",
        "groups",
        "text-single",
        Group.PARTITIONS,
        "Consumer groups that may own partitions, with blanks between (empty: any)",
        Text(4096),
    ),
    Option(
        "stanzaq#multi_subscribe",
        "multi_subscribe",
        "boolean",
        Group.ACCESS,
        "A JID may have several subscriptions, each with a credit of its own",
        boolean,
        on=None,
        of_queues=True,
        counted=True,
    ),
    Option(
        "pubsub#notify_delete",
        "notify_delete",
        "boolean",
        Group.ACCESS,
        "Tell subscribers when the node is deleted",
        boolean,
        on=None,
    ),
    Option(
        "pubsub#notify_retract",
        "notify_retract",
        "boolean",
        Group.ACCESS,
        "Tell subscribers when the node is purged",
        boolean,
    ),
    Option(
        "pubsub#notify_config",
        "notify_config",
        "boolean",
        Group.ACCESS,
        "Tell subscribers when the configuration changes",
        boolean,
        on=None,
    ),
    Option(
        "stanzaq#state",
        "state",
        "list-single",
        Group.IDENTITY,
        "Whether the node hands items out (not while paused) and takes new ones (not while draining)",
        NodeState,
        values(NodeState),
    ),
    Option(
        "pubsub#node_type",
        "node_type",
        "list-single",
        Group.IDENTITY,
        "Whether the node contains items or nodes",
        NodeType,
        values(NodeType),
        on=None,
    ),
    Option(
        "pubsub#children_max",
        "children_max",
        "text-single",
        Group.LIMITS,
        "Most children of the collection",
        Whole(0, MAX_CHILDREN, ("max",)),
        on=NodeType.COLLECTION,
    ),
    Option(
        "pubsub#children_association_policy",
        "association",
        "list-single",
        Group.ACCESS,
        "Who may associate nodes with the collection",
        Association,
        values(Association),
        on=NodeType.COLLECTION,
    ),
    Option(
        "pubsub#children_association_whitelist",
        "association_whitelist",
        "jid-multi",
        Group.ACCESS,
        "Who else may, with the policy whitelist",
        Text(65_536),
        on=NodeType.COLLECTION,
        many=True,
    ),
)

BY_NAME: Final = {name: option for option in OPTIONS for name in (option.name, *option.aliases)}

FORCED: Final = {
    "pubsub#deliver_payloads": "1",
    "pubsub#deliver_notifications": "1",
    "pubsub#persist_items": "1",
    "pubsub#send_last_published_item": "never",
    "pubsub#notification_type": "normal",
}
"""Fields of XEP-0060 that a queue's owner cannot choose (Q15, PX3, PX5): accepted when equal, refused otherwise.

An item that is sent to an absent subscriber must come back, and a headline would be lost (P32, Q18).
"""
