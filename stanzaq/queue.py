"""A queue as a program declares it: its name and options, in the words of Python and of the service. Pure.

The service's own table of options is docs/protocol.md; a test compares both.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import Annotated, Final, Literal, get_args

from stanzaq.durations import Duration, seconds

Create = Literal["never", "if-missing", "update"]
"""Whether a node that is declared is created, and whether one that differs is changed."""

CREATES: Final = get_args(Create)


@dataclass(frozen=True)
class Queue:
    """A queue: `Queue("thumbnails", rate="100/s", retry_delay="10s")`. What is not given is not checked.

    Each option stands beside its name in docs/protocol.md; lengths of time are seconds, or texts with a unit.
    """

    name: str
    _: KW_ONLY
    queueing: Annotated[bool | None, "{urn:xmpp:pubsub:queueing:0}enabled"] = None
    title: Annotated[str | None, "pubsub#title"] = None
    description: Annotated[str | None, "pubsub#description"] = None
    type: Annotated[str | None, "pubsub#type"] = None
    lock: Annotated[Duration | None, "stanzaq#lock_seconds"] = None
    max_deliveries: Annotated[int | None, "stanzaq#max_deliveries"] = None
    retry_delay: Annotated[Duration | None, "stanzaq#retry_delay"] = None
    retry_backoff: Annotated[float | None, "stanzaq#retry_backoff"] = None
    retry_limit: Annotated[Duration | None, "stanzaq#retry_limit"] = None
    retry_jitter: Annotated[float | None, "stanzaq#retry_jitter"] = None
    rate: Annotated[str | None, "stanzaq#rate"] = None
    rate_burst: Annotated[int | None, "stanzaq#rate_burst"] = None
    max_in_flight: Annotated[int | None, "stanzaq#max_in_flight"] = None
    rate_by_key: Annotated[str | None, "stanzaq#rate_by_key"] = None
    max_in_flight_by_key: Annotated[int | None, "stanzaq#max_in_flight_by_key"] = None
    publish_rate: Annotated[str | None, "stanzaq#publish_rate"] = None
    fair: Annotated[Literal["none", "key", "publisher"] | None, "stanzaq#fair"] = None
    fair_weights: Annotated[dict[str, float] | None, "stanzaq#fair_weights"] = None
    dead_letters: Annotated[str | None, "stanzaq#dead_letter_node"] = None
    dedupe: Annotated[Literal["overwrite", "ignore"] | None, "stanzaq#dedupe"] = None
    dedupe_seconds: Annotated[Duration | None, "stanzaq#dedupe_seconds"] = None
    confirm: Annotated[Literal["stored", "synced", "replicated"] | None, "stanzaq#confirm"] = None
    max_items: Annotated[int | None, "pubsub#max_items"] = None
    node_full: Annotated[
        Literal["reject", "retract-oldest", "dead-letter-oldest"] | None, "pubsub#publish_node_full"
    ] = None
    access_model: Annotated[Literal["open", "authorize", "whitelist"] | None, "pubsub#access_model"] = None
    publish_model: Annotated[Literal["publishers", "subscribers", "open"] | None, "pubsub#publish_model"] = None
    max_payload_bytes: Annotated[int | None, "pubsub#max_payload_size"] = None
    partitions: Annotated[int | None, "stanzaq#partitions"] = None
    ordered: Annotated[bool | None, "stanzaq#ordered"] = None
    retention: Annotated[Duration | None, "stanzaq#retention_seconds"] = None
    retention_items: Annotated[int | None, "stanzaq#retention_items"] = None
    retention_bytes: Annotated[int | None, "stanzaq#retention_bytes"] = None
    result: Annotated[Duration | None, "stanzaq#result_seconds"] = None
    journal: Annotated[Literal["", "publisher", "key", "publisher key"] | None, "stanzaq#journal"] = None
    groups: Annotated[str | None, "stanzaq#groups"] = None
    multi_subscribe: Annotated[bool | None, "stanzaq#multi_subscribe"] = None
    notify_delete: Annotated[bool | None, "pubsub#notify_delete"] = None
    notify_retract: Annotated[bool | None, "pubsub#notify_retract"] = None
    notify_config: Annotated[bool | None, "pubsub#notify_config"] = None
    state: Annotated[Literal["running", "paused", "draining"] | None, "stanzaq#state"] = None
    node_type: Annotated[Literal["leaf", "collection"] | None, "pubsub#node_type"] = None
    children_max: Annotated[int | None, "pubsub#children_max"] = None
    association: Annotated[Literal["owners", "whitelist", "all"] | None, "pubsub#children_association_policy"] = None
    association_whitelist: Annotated[list[str] | None, "pubsub#children_association_whitelist"] = None

    def __post_init__(self) -> None:
        """Refuse what is no name, and lengths of time that cannot be read; raises TypeError and ValueError."""
        if not (self.name and isinstance(self.name, str)):
            msg = f'{self.name!r} is no name of a node: write Queue("NODE")'
            raise TypeError(msg)
        _ = self.options

    @property
    def options(self) -> dict[str, str]:
        """The options that are given, in the words of the service."""
        return {option: text for option, (_, text, _) in self._given().items()}

    def differences(self, found: Mapping[str, str]) -> dict[str, str]:
        """Compare the options with those of the service; returns what differs, each option with a sentence about it."""
        told = {}
        for option, (name, text, unit) in self._given().items():
            there = found.get(option, "")
            if there != text:
                now, wanted = (f"{each}{unit}" if each else "empty" for each in (there, text))
                told[option] = f"{name} is {now}, and the program declares {wanted}"
        return told

    def _given(self) -> dict[str, tuple[str, str, str]]:
        """Return the options that are given, each with its name in Python, its text and the unit of that."""
        found = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name != "name" and value is not None:
                kind, option = get_args(each.type)
                is_time = {float, str} <= set(get_args(kind))
                text = _decimal(seconds(value)) if is_time else _write(value)
                found[option] = each.name, text, "s" if is_time else ""
        return found


def _write(value: object) -> str:
    """Write a value as the service does."""
    match value:
        case bool():
            return f"{value:d}"
        case float():
            return _decimal(value)
        case dict():
            return "\n".join(f"{name}={_decimal(weight)}" for name, weight in value.items())
        case list():
            return "\n".join(value)
    return str(value)


def _decimal(value: float) -> str:
    """Write a number in the shortest form, to milliseconds."""
    return f"{value:.3f}".rstrip("0").rstrip(".")
