"""A node's record: how it is configured and who may do what with it. Pure rules; must not know forms, Redis or stanzas."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Final

from broker.model.names import Jid, Partition
from broker.model.options import BY_NAME, FORCED, IGNORED, OPTIONS, NodeConfig, Option
from broker.model.problems import MalformedRequest, Problem

MAX_AFFILIATIONS: Final = 10_000
MAX_SUBSCRIBERS: Final = 20_000


class Affiliation(Enum):
    """How a bare JID stands to a node (XEP-0060 §4.1)."""

    OWNER = "owner"
    PUBLISHER = "publisher"
    PUBLISH_ONLY = "publish-only"
    MEMBER = "member"
    NONE = "none"
    OUTCAST = "outcast"


def configured(config: NodeConfig, options: Mapping[str, tuple[str, ...]]) -> NodeConfig:
    """Give the configuration with these fields changed; raises MalformedRequest naming the field that is wrong."""
    changes: dict[str, object] = {}
    for name, values in options.items():
        if name in IGNORED:
            continue
        text = values[0] if values else ""
        if name in FORCED:
            forced = FORCED[name]
            if text != forced and {"true": "1", "false": "0"}.get(text) != forced:
                raise MalformedRequest(Problem.NOT_ACCEPTABLE, f"{name} is always {forced} on a queue")
            continue
        option = BY_NAME.get(name)
        if option is None:
            raise MalformedRequest(Problem.NOT_ACCEPTABLE, f"{name[:80]} is not a field of this service")
        if len(values) > 1:
            raise MalformedRequest(Problem.NOT_ACCEPTABLE, f"{name} takes one value")
        try:
            changes[option.attribute] = option.read(text)
        except ValueError:
            raise _refusal(option) from None
    if changes.get("queueing") is False:
        raise MalformedRequest(Problem.NOT_ACCEPTABLE, "this service keeps queues only: queueing cannot be disabled")
    if int(changes.get("partitions", config.partitions)) < config.partitions:  # type: ignore[call-overload]
        raise MalformedRequest(
            Problem.NOT_ACCEPTABLE,
            f"the node has {config.partitions} partitions already: there may be more, never fewer",
        )
    return replace(config, **changes)  # type: ignore[arg-type]


def _refusal(option: Option) -> MalformedRequest:
    if option.attribute == "access_model":
        return MalformedRequest(
            Problem.ACCESS_MODEL_UNSUPPORTED, f"{option.name} is one of {', '.join(option.choices)}"
        )
    if option.choices:
        return MalformedRequest(Problem.NOT_ACCEPTABLE, f"{option.name} is one of {', '.join(option.choices)}")
    return MalformedRequest(Problem.NOT_ACCEPTABLE, f"{option.name}: {option.label}: out of range or not of its type")


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node as the service keeps it; `revision` grows with every change and is what scripts check callers' knowledge by."""

    name: str
    incarnation: str
    revision: int
    config: NodeConfig
    affiliations: Mapping[Jid, Affiliation] = field(default_factory=dict)

    def partition(self, number: int) -> Partition:
        """Give one of its partitions."""
        return Partition(self.name, self.incarnation, number)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """Give all of its partitions."""
        return tuple(map(self.partition, range(self.config.partitions)))

    def affiliation(self, jid: Jid) -> Affiliation:
        """Give how a bare JID stands to the node."""
        return self.affiliations.get(jid, Affiliation.NONE)


def shown(node: str, config: NodeConfig) -> dict[str, str]:
    """Give every field as its owner's form shows it: what is in force, so that sending the form back changes nothing."""
    fields_shown = {option.name: option.show(config) for option in OPTIONS}
    fields_shown["stanzaq#dead_letter_node"] = config.dead_letters_of(node) or ""
    return fields_shown


def stored(config: NodeConfig) -> dict[str, str]:
    """Write the fields that differ from the default, by wire name: what the node's hash in Redis holds."""
    default = NodeConfig()
    return {
        option.name: option.show(config)
        for option in OPTIONS
        if getattr(config, option.attribute) != getattr(default, option.attribute)
    }


def restored(options: Mapping[str, str]) -> NodeConfig:
    """Read what `stored` wrote; fields of a newer version are passed over, so that old frontends read new records."""
    known = {name: (value,) for name, value in options.items() if name in BY_NAME}
    return configured(NodeConfig(), known)


assert {option.attribute for option in OPTIONS} == {item.name for item in fields(NodeConfig)}
