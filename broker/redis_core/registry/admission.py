"""Reads the node of a command and judges its sender, for handlers. Must not know what any command does."""

from broker.model.nodes.nodes import NodeRecord
from broker.model.results import Refused
from broker.redis_core.commands.internal import GONE, AnyCommand
from broker.redis_core.records.store import NodeStore
from broker.redis_core.registry.rows import refusal


async def admit(store: NodeStore, command: AnyCommand, node: str) -> NodeRecord | Refused:
    """Return the record of a command's node, with administrators among the owners, or why the sender may not give it."""
    record = await store.read_with_admins(node)
    return GONE if record is None else refusal(command, record) or record
