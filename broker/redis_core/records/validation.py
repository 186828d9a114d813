"""Rules for nodes, checked before anything is created or changed. Must not know how either is done."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from broker.model.commands import Configure, Declare
from broker.model.frozen import frozen
from broker.model.items.durability import Durability
from broker.model.names import NODE_NAME_BYTES, Jid, bare_jid, domain, is_printable
from broker.model.nodes.fields import Option
from broker.model.nodes.nodes import NodeRecord, change_config
from broker.model.nodes.options import OPTIONS, Fair, NodeConfig
from broker.model.nodes.pull_subscriptions import is_lease_record
from broker.model.nodes.tree import TreeRequest, tree_request
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Refused
from broker.model.roles import Roles
from broker.settings import NodeCreation, Settings

_DEFAULTS = NodeConfig()

_NAMES = f"a node's name has 1 to {NODE_NAME_BYTES} printable bytes"


@frozen
class Rules:
    """Who may create nodes besides those whose role lets them, how many, and a new node's defaults."""

    roles: Roles
    creates: Callable[[Jid], bool]
    defaults: NodeConfig
    node_quota: int
    partition_quota: int


def creators(settings: Settings, door: str) -> Callable[[Jid], bool]:
    """Return a function that tells who may create nodes at a door, besides administrators.

    Over HTTP and AMQP it is whoever has logged in, which the anonymous account has not; over XMPP accounts of local domains,
    since a stanza may come from any server. A command has no door: whoever has the settings may do everything.
    """
    if settings.node_creation is NodeCreation.ANYONE or not door:
        return lambda _jid: True
    if settings.node_creation is NodeCreation.ADMINS:
        return lambda _jid: False
    if door == "xmpp":
        local = settings.local_domains
        return lambda jid: domain(jid) in local
    anonymous = settings.http_anonymous if door == "rest" else settings.amqp_anonymous
    return lambda jid: jid != anonymous


_NO_CREATOR: Final = Refused(
    Problem.FORBIDDEN, "you may not create nodes here: ask an administrator for one, or for a wider NODE_CREATION"
)


class NodeRules:
    """Checks requests for nodes."""

    def __init__(
        self,
        rules: Rules,
        read: Callable[[str], Awaitable[NodeRecord | None]],
        lacks: Callable[[Durability], Awaitable[str]],
    ) -> None:
        """Check by `rules` and by the existing nodes; `lacks` says why Redis cannot make writes so durable."""
        self._rules = rules
        self._read = read
        self._lacks = lacks

    def new_config(self, command: Declare, node: str) -> tuple[NodeConfig, TreeRequest] | Refused:
        """Return a new node's configuration and place in the tree, or why it is refused."""
        creator = bare_jid(command.sender)
        if not (self._rules.creates(creator) or self._rules.roles.lets(command)):
            return _NO_CREATOR
        if not _nameable(node):
            return Refused(Problem.NODE_NAME_INVALID, _NAMES)
        if is_lease_record(node):
            return Refused(
                Problem.NODE_NAME_INVALID, "lease- and 16 hexadecimal digits name a lease over several queues"
            )
        try:
            options, tree = tree_request(command.options)
            config = change_config(self._rules.defaults, options)
        except MalformedRequest as wrong:
            return Refused(wrong.problem, wrong.detail)
        # A collection is neither a queue nor a log: the option has the same value in all of them.
        config = replace(config, queueing=True) if config.collects else config
        return check_options(config) or (config, tree)

    async def check_durability(self, config: NodeConfig) -> Refused | None:
        """Refuse to confirm publishes in a way that this Redis does not know."""
        lacks = await self._lacks(config.confirm)
        return Refused(Problem.NOT_ACCEPTABLE, f"stanzaq#confirm: {lacks}") if lacks else None

    async def check_dead_letter_node(
        self, node: str, config: NodeConfig, command: Declare | Configure
    ) -> Refused | None:
        """Refuse a dead-letter node of another owner: dead letters would flood it, or show their content to its owner."""
        target = config.dead_letters_of(node)
        if target == node:
            return Refused(Problem.NOT_ACCEPTABLE, "a node cannot take its own dead letters")
        if target is not None and (not _nameable(target) or is_lease_record(target)):
            return Refused(Problem.NOT_ACCEPTABLE, f"stanzaq#dead_letter_node is not a valid node name: {_NAMES}")
        target_record = None if target is None else await self._read(target)
        if target_record is not None and target_record.config.collects:
            return Refused(Problem.NOT_ACCEPTABLE, f"the node for dead letters, {target!r}, is a collection")
        if target_record is None or target_record.is_owned_by(command):
            return None
        return Refused(
            Problem.NOT_ACCEPTABLE,
            f"the node for dead letters, {target!r}, belongs to another: name one of yours in stanzaq#dead_letter_node",
        )


def check_options(config: NodeConfig) -> Refused | None:
    """Refuse options that exclude each other: a reader of a log is known by its JID, and no item is handed out."""
    if config.queueing and config.ordered and config.fair is Fair.PUBLISHER:
        return Refused(
            Problem.NOT_ACCEPTABLE,
            "stanzaq#fair: turns of publishers would change the order of a key (stanzaq#ordered), turns of keys do not",
        )
    if config.partitions > 1:
        counted = [
            option for option in _changed(config) if option.counted and (config.queueing or not option.of_queues)
        ]
        if counted:
            detail = f"{counted[0].name}: one script must count it, so a node that has it has one partition"
            return Refused(Problem.NOT_ACCEPTABLE, detail)
    if config.queueing:
        return None
    if config.multi_subscribe:
        return Refused(Problem.NOT_ACCEPTABLE, "stanzaq#multi_subscribe: a log has one subscription for each JID")
    changed = next((option.name for option in _changed(config) if option.of_queues), None)
    return Refused(Problem.NOT_ACCEPTABLE, f"{changed}: a log hands nothing out as work") if changed else None


def _changed(config: NodeConfig) -> list[Option]:
    """Return the options whose values are not the defaults."""
    return [option for option in OPTIONS if getattr(config, option.attribute) != getattr(_DEFAULTS, option.attribute)]


def check_conversion(before: NodeConfig, after: NodeConfig) -> Refused | None:
    """Refuse to turn a queue into a log or back, or a leaf into a collection or back."""
    if before.collects is not after.collects:
        return Refused(Problem.TREE_INVALID, "a leaf stays a leaf and a collection a collection: make another node")
    if before.queueing == after.queueing:
        return None
    return Refused(
        Problem.NOT_ACCEPTABLE, "pubsub#queueing: a queue stays a queue and a log stays a log, so make another node"
    )


def _nameable(node: str) -> bool:
    return 0 < len(node.encode()) <= NODE_NAME_BYTES and is_printable(node)
