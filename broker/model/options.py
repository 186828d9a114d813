"""The table of a node's configuration fields and what each may be. Pure; must not know forms, Redis or stanzas.

Every form, every stored record and every document is made from `OPTIONS`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

MAX_ITEMS: Final = 1_000_000
MAX_PAYLOAD_BYTES: Final = 262_144
MAX_CREDIT: Final = 1_000
MAX_LOCK_SECONDS: Final = 43_200
MAX_PARTITIONS: Final = 1_024
MAX_RETENTION_SECONDS: Final = 10 * 365 * 86_400
MAX_RETENTION_BYTES: Final = 2**40


class Dedupe(Enum):
    """What a repeated item id means (X1)."""

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
    WHITELIST = "whitelist"


class PublishModel(Enum):
    """Who may publish."""

    PUBLISHERS = "publishers"
    SUBSCRIBERS = "subscribers"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """All configuration of a node; durations in seconds as their options are, sizes in bytes."""

    queueing: bool = True
    title: str = ""
    lock_seconds: int = 60
    max_deliveries: int = 20
    dead_letter_node: str | None = None
    dedupe: Dedupe = Dedupe.OVERWRITE
    dedupe_seconds: int = 600
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
    groups: str = ""

    @property
    def keep_items(self) -> int:
        """Give the most entries that are kept when their work is done, 0 for no limit of this kind.

        A log that is told nothing holds what XEP-0060 has it hold.
        """
        limits = self.retention_seconds + self.retention_items + self.retention_bytes
        return self.retention_items if self.queueing or limits else self.max_items

    def admits(self, group: str) -> bool:
        """Tell whether a consumer group may form; while none is named, any may (E26)."""
        return not self.groups.strip() or group in self.groups.split()

    def dead_letters_of(self, node: str) -> str | None:
        """Name the node that takes the dead letters of `node`; None when there are to be none, as of a log."""
        if not self.queueing:
            return None
        return f"{node}/dead" if self.dead_letter_node is None else self.dead_letter_node or None


@dataclass(frozen=True, slots=True)
class Option:
    """One configuration field: its name on the wire, the attribute it sets, how it is read and shown."""

    name: str
    attribute: str
    kind: str
    label: str
    read: Callable[[str], object]
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def show(self, config: NodeConfig) -> str:
        """Write the field's value as a form or a stored record holds it."""
        value = getattr(config, self.attribute)
        if isinstance(value, Enum):
            return str(value.value)
        if isinstance(value, bool):
            return "1" if value else "0"
        return "" if value is None else str(value)


def _boolean(text: str) -> bool:
    if text not in {"0", "1", "true", "false"}:
        msg = "must be 0, 1, true or false"
        raise ValueError(msg)
    return text in {"1", "true"}


def _whole(low: int, high: int, *words: str) -> Callable[[str], int]:
    def read(text: str) -> int:
        if text in words:
            return high
        # Bounded before int(): a form may hold megabytes of digits, and int() is quadratic in them.
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and low <= int(text) <= high):
            msg = f"must be a whole number from {low} to {high}"
            raise ValueError(msg)
        return int(text)

    return read


def _text(limit: int) -> Callable[[str], str]:
    def read(text: str) -> str:
        if len(text.encode()) > limit:
            msg = f"must be no longer than {limit} bytes"
            raise ValueError(msg)
        return text

    return read


def _values(kind: type[Enum]) -> tuple[str, ...]:
    return tuple(str(member.value) for member in kind)


OPTIONS: Final = (
    Option(
        "{urn:xmpp:pubsub:queueing:0}enabled",
        "queueing",
        "boolean",
        "Each item goes to one subscriber (a queue)",
        _boolean,
        aliases=("pubsub#queueing",),
    ),
    Option("pubsub#title", "title", "text-single", "A short name for people", _text(1024)),
    Option(
        "stanzaq#lock_seconds",
        "lock_seconds",
        "text-single",
        "Seconds that a worker has for an item",
        _whole(1, MAX_LOCK_SECONDS),
    ),
    Option(
        "stanzaq#max_deliveries",
        "max_deliveries",
        "text-single",
        "Deliveries of an item before it is a dead letter (0: no limit)",
        _whole(0, 1_000),
    ),
    Option(
        "stanzaq#dead_letter_node",
        "dead_letter_node",
        "text-single",
        "Node for dead letters (empty: items are tried for ever)",
        _text(1023),
    ),
    Option(
        "stanzaq#dedupe",
        "dedupe",
        "list-single",
        "What a repeated item id does",
        Dedupe,
        _values(Dedupe),
    ),
    Option(
        "stanzaq#dedupe_seconds",
        "dedupe_seconds",
        "text-single",
        "Seconds for which repeated ids are ignored (with dedupe ignore)",
        _whole(1, 604_800),
    ),
    Option(
        "pubsub#max_items",
        "max_items",
        "text-single",
        "Most items that the node holds",
        _whole(1, MAX_ITEMS, "max"),
    ),
    Option(
        "pubsub#publish_node_full",
        "node_full",
        "list-single",
        "What a publish to a full node does",
        WhenFull,
        _values(WhenFull),
        aliases=("pubsub#publish_full_node",),
    ),
    Option(
        "pubsub#access_model",
        "access_model",
        "list-single",
        "Who may subscribe",
        AccessModel,
        _values(AccessModel),
    ),
    Option(
        "pubsub#publish_model",
        "publish_model",
        "list-single",
        "Who may publish",
        PublishModel,
        _values(PublishModel),
    ),
    Option(
        "pubsub#max_payload_size",
        "max_payload_bytes",
        "text-single",
        "Largest payload in bytes",
        _whole(1, MAX_PAYLOAD_BYTES),
    ),
    Option(
        "stanzaq#partitions",
        "partitions",
        "text-single",
        "Partitions that the items are spread over (never fewer than now)",
        _whole(1, MAX_PARTITIONS),
    ),
    Option(
        "stanzaq#ordered",
        "ordered",
        "boolean",
        "Items of one group key are worked on one after another",
        _boolean,
    ),
    Option(
        "stanzaq#retention_seconds",
        "retention_seconds",
        "text-single",
        "Seconds for which items stay readable that are done with (0: no limit)",
        _whole(0, MAX_RETENTION_SECONDS),
    ),
    Option(
        "stanzaq#retention_items",
        "retention_items",
        "text-single",
        "Most of these that each partition keeps (0: no limit)",
        _whole(0, MAX_ITEMS),
    ),
    Option(
        "stanzaq#retention_bytes",
        "retention_bytes",
        "text-single",
        "Most bytes of these that each partition keeps (0: no limit)",
        _whole(0, MAX_RETENTION_BYTES),
    ),
    Option(
        "stanzaq#groups",
        "groups",
        "text-single",
        "Consumer groups that may own partitions, with blanks between (empty: any)",
        _text(4096),
    ),
)

BY_NAME: Final = {name: option for option in OPTIONS for name in (option.name, *option.aliases)}

FORCED: Final = {
    "pubsub#deliver_payloads": "1",
    "pubsub#deliver_notifications": "1",
    "pubsub#persist_items": "1",
    "pubsub#send_last_published_item": "never",
    "pubsub#node_type": "leaf",
}
"""Fields of XEP-0060 that a queue does not let its owner choose (Q15, PX3, PX5): accepted when equal, refused otherwise."""

IGNORED: Final = frozenset({"FORM_TYPE", "pubsub#notify_retract", "pubsub#notify_delete", "pubsub#notify_config"})
"""Fields that are accepted and change nothing: on a queue exactly the holder is told (QX5)."""
