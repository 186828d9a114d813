"""A node's record: its configuration and affiliations. Pure rules; must not know forms, Redis or stanzas."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from enum import Enum
from functools import lru_cache, partial
from typing import Any, Final

from broker.model.frozen import frozen
from broker.model.names import GROUP, Jid, Partition, bare_jid, domain, is_group
from broker.model.nodes.fields import Option
from broker.model.nodes.options import BY_NAME, FORCED, OPTIONS, AccessModel, NodeConfig
from broker.model.problems import MalformedRequest, Problem
from broker.model.roles import Roles

MAX_AFFILIATIONS: Final = 10_000
MAX_SUBSCRIBERS: Final = 100_000


_DEFAULT: Final = NodeConfig()
_BY_ATTRIBUTE: Final = {option.attribute: option for option in OPTIONS}


class Affiliation(Enum):
    """The affiliation of a bare JID with a node (XEP-0060 §4.1), or of all of a group or a domain that have none of their own."""

    OWNER = "owner"
    PUBLISHER = "publisher"
    PUBLISH_ONLY = "publish-only"
    MEMBER = "member"
    NONE = "none"
    OUTCAST = "outcast"


def names_of(jid: Jid, groups: Sequence[Jid] = ()) -> tuple[Jid, ...]:
    """Return under which names a bare JID, or a group, has an affiliation; `choose` tells which one counts."""
    return (jid,) if is_group(jid) else (jid, *groups, Jid(domain(jid)))


def choose(found: Sequence[Affiliation | None]) -> Affiliation | None:
    """Return the affiliation that counts of those under each of `names_of`: its own, then its groups', then its domain's."""
    return found[0] or _join(found[1:-1]) or found[-1]


def _join(found: Iterable[Affiliation | None]) -> Affiliation | None:
    """Return what groups give together: `outcast` of any of them bars, else the most that they let do."""
    given = set(found)
    if {Affiliation.MEMBER, Affiliation.PUBLISH_ONLY} <= given:
        given.add(Affiliation.PUBLISHER)
    return next((each for each in _FIRST if each in given), None)


_FIRST: Final = (
    Affiliation.OUTCAST,
    Affiliation.OWNER,
    Affiliation.PUBLISHER,
    Affiliation.MEMBER,
    Affiliation.PUBLISH_ONLY,
)

READERS = (Affiliation.OWNER, Affiliation.PUBLISHER, Affiliation.MEMBER)
"""Those that may read a node whatever its access model is."""


def change_config(config: NodeConfig, options: Mapping[str, tuple[str, ...]]) -> NodeConfig:
    """Return the configuration with these fields changed; raises MalformedRequest naming a wrong field."""
    changes: dict[str, object] = {}
    for name, values in options.items():
        if name in FORCED:
            if not _is_forced_value(name, values):
                raise MalformedRequest(Problem.NOT_ACCEPTABLE, f"{name} is always {FORCED[name]} on a queue")
            continue
        option = _option(name)
        changes[option.attribute] = _value(option, name, values)
    changed = replace(config, **changes)  # type: ignore[arg-type]
    for attribute in changes:
        _check_node_type(attribute, changed)
    return changed


def _check_node_type(attribute: str, config: NodeConfig) -> None:
    """Refuse a field of the other type of node, unless it has its default: clients send whole forms back."""
    option = _BY_ATTRIBUTE[attribute]
    if option.on not in {None, config.node_type} and getattr(config, attribute) != getattr(_DEFAULT, attribute):
        raise MalformedRequest(Problem.NOT_ACCEPTABLE, f"{option.name} is not a field of a {config.node_type.value}")


def find_unmet(record: "NodeRecord", options: Mapping[str, tuple[str, ...]]) -> str | None:
    """Return the first of these fields whose value differs from the node's; None when there is none (P18).

    Raises MalformedRequest naming an unknown field or an impossible value.
    """
    for name, values in options.items():
        if name in FORCED:
            if not _is_forced_value(name, values):
                return name
            continue
        option = _option(name)
        is_set = getattr(record.config, option.attribute)
        if option.attribute == "dead_letter_node":
            is_set = record.config.dead_letters_of(record.name) or ""
        if _value(option, name, values) != is_set:
            return name
    return None


def _is_forced_value(name: str, values: tuple[str, ...]) -> bool:
    text = values[0] if values else ""
    return FORCED[name] in {text, {"true": "1"}.get(text)}


def _option(name: str) -> Option:
    option = BY_NAME.get(name)
    if option is None:
        raise MalformedRequest(Problem.NOT_ACCEPTABLE, f"{name[:80]} is not a field of this service")
    return option


def _value(option: Option, name: str, values: tuple[str, ...]) -> object:
    if len(values) > 1 and not option.many:
        raise MalformedRequest(Problem.NOT_ACCEPTABLE, f"{name} takes one value")
    try:
        return option.read("\n".join(values))
    except ValueError as fault:
        raise _refusal(option, str(fault)) from None


def _refusal(option: Option, wrong: str) -> MalformedRequest:
    if option.attribute == "access_model":
        return MalformedRequest(
            Problem.ACCESS_MODEL_UNSUPPORTED, f"{option.name} is one of {', '.join(option.choices)}"
        )
    if option.choices:
        return MalformedRequest(Problem.NOT_ACCEPTABLE, f"{option.name} is one of {', '.join(option.choices)}")
    return MalformedRequest(Problem.NOT_ACCEPTABLE, f"{option.name} {wrong}")


def _lets_nobody(_command: object) -> bool:
    return False


@frozen
class NodeRecord:
    """A node's stored record; `revision` grows with every change, and operations compare it with the caller's.

    The node is a child of the collection `parent` while that has the incarnation `parent_life`, else of the root. A record with
    `destinations` is no node's but that of a lease over several queues. One by which
    commands are judged knows whether the role of a command's sender is enough, and the groups of senders if it names any.
    """

    name: str
    incarnation: str
    revision: int
    config: NodeConfig
    affiliations: Mapping[Jid, Affiliation] = field(default_factory=dict)
    created_ms: int = 0
    creator: Jid | None = None
    parent: str = ""
    parent_life: str = ""
    destinations: tuple[str, ...] = ()
    role_lets: Callable[[Any], bool] = field(default=_lets_nobody, compare=False, repr=False)
    groups_of: Callable[[Jid], tuple[Jid, ...]] | None = field(default=None, compare=False, repr=False)

    def partition(self, number: int) -> Partition:
        """Return one of its partitions."""
        return Partition(self.name, self.incarnation, number)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """All of its partitions."""
        return tuple(map(self.partition, range(self.config.partitions)))

    @property
    def dead_letter_target(self) -> str:
        """Where its dead letters go: to their node, or without one back to their own."""
        return self.config.dead_letters_of(self.name) or self.name

    def add_roles(self, roles: Roles) -> "NodeRecord":
        """Return the record for judging commands: with the service's roles, and its administrators among the owners."""
        admins = dict.fromkeys(roles.admins, Affiliation.OWNER)
        return replace(
            self,
            affiliations={**self.affiliations, **admins} if admins else self.affiliations,
            role_lets=partial(roles.lets, node=self.name),
            groups_of=roles.groups_of if self.names_groups else None,
        )

    @property
    def names_groups(self) -> bool:
        """Whether any group has an affiliation."""
        return any(name.startswith(GROUP) for name in self.affiliations)

    def affiliation(self, jid: Jid, groups: Sequence[Jid] = ()) -> Affiliation:
        """Return the affiliation of a bare JID, or of a group: its own, that of these groups, or that of its domain."""
        return choose([self.affiliations.get(name) for name in names_of(jid, groups)]) or Affiliation.NONE

    def affiliation_of(self, command: Any) -> Affiliation:  # noqa: ANN401  (any command)
        """Return the affiliation of the sender of a command. Its groups count: it has come to this process with its token."""
        jid = bare_jid(getattr(command, "sender", ""))
        if self.groups_of is not None:
            return self.affiliation(jid, self.groups_of(jid))
        # Each command asks this: the names are those of `names_of`, without its calls.
        own = self.affiliations.get(jid)
        return own or self.affiliations.get(Jid(jid.rpartition("@")[2]), Affiliation.NONE)

    def shares_owner(self, other: "NodeRecord") -> bool:
        """Return whether an owner of one of two nodes owns the other too, as an account, a group or by its domain."""
        return any(
            one.affiliation(jid) is Affiliation.OWNER
            for one, those in ((self, other), (other, self))
            for jid, affiliation in those.affiliations.items()
            if affiliation is Affiliation.OWNER
        )

    def is_owned_by(self, command: Any) -> bool:  # noqa: ANN401  (any command)
        """Return whether the sender of a command is an owner, or its role is enough for this command."""
        return self.affiliation_of(command) is Affiliation.OWNER or self.role_lets(command)

    def lets_read(self, affiliation: Affiliation) -> bool:
        """Return whether who has this affiliation may read the node, and subscribe to it without being asked for more."""
        is_open = affiliation is Affiliation.NONE and self.config.access_model is AccessModel.OPEN
        return is_open or affiliation in READERS

    def is_readable(self, jid: Jid, groups: Sequence[Jid] = ()) -> bool:
        """Return whether a bare JID of these groups may read the node."""
        return self.lets_read(self.affiliation(jid, groups))


def form_values(node: str, config: NodeConfig) -> dict[str, str]:
    """Return every field as the owner's form shows it: values in force, so that the form sent back changes nothing."""
    fields_shown = {option.name: option.show(config) for option in OPTIONS}
    fields_shown["stanzaq#dead_letter_node"] = config.dead_letters_of(node) or ""
    return fields_shown


def to_stored(config: NodeConfig) -> dict[str, str]:
    """Return the fields that differ from the default, by wire name, as the node's hash in Redis stores them."""
    return {
        option.name: option.show(config)
        for option in OPTIONS
        if getattr(config, option.attribute) != getattr(_DEFAULT, option.attribute)
    }


def from_stored(options: Mapping[str, str]) -> NodeConfig:
    """Read what `to_stored` wrote; fields of a newer version are skipped, so that old frontends read new records."""
    return _build_config(tuple((name, value) for name, value in options.items() if name in BY_NAME))


@lru_cache(maxsize=1_000)
def _build_config(options: tuple[tuple[str, str], ...]) -> NodeConfig:
    """Build a configuration; cached, since many nodes have the same one."""
    return change_config(_DEFAULT, {name: (value,) for name, value in options})


assert {option.attribute for option in OPTIONS} == {item.name for item in fields(NodeConfig) if item.init}
