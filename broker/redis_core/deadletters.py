"""Dead letters on their way: from the record in their old partition to their node, then out of the record.

Two idempotent steps (design §5): a crash after the first repeats both, and the second copy finds the first by its id.
Must not know when an item becomes a dead letter: a script decided that.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import structlog

from broker import codec
from broker.model.items import Envelope
from broker.model.names import Jid
from broker.model.nodes import Affiliation, NodeRecord
from broker.model.options import NodeConfig, PublishModel
from broker.model.problems import CorruptRecord
from broker.model.results import Published, Refused
from broker.redis_core.directory import Directory
from broker.redis_core.internal import DeadLetter, Handed
from broker.redis_core.nodes import NodeWork

log = structlog.get_logger()

HEADERS = ("reason", "holder", "attempts", "node", "item", "publisher")
"""What a dead letter tells of itself, each as header `stanzaq-dead-NAME`."""


def lettered(envelope: bytes, told: dict[str, str]) -> bytes:
    """Add to an envelope what became of its item."""
    try:
        opened = codec.unpack(envelope)
    except CorruptRecord:
        # Even what nobody can read is kept: the bytes go on as they are.
        opened = Envelope(envelope, "application/octet-stream")
    headers = {**opened.headers, **{f"stanzaq-dead-{name}": told[name] for name in HEADERS}}
    return codec.pack(replace(opened, headers=headers))


class DeadLetters:
    """Carries dead letters to their nodes, which it makes when they are not there."""

    def __init__(self, directory: Directory, nodes: NodeWork, ask: Callable[[Any], Awaitable[Any]]) -> None:
        """Publish and forget by `ask`."""
        self._directory = directory
        self._nodes = nodes
        self._ask = ask

    async def carry(self, record: NodeRecord, partition: int, letter: list[Any]) -> bool:
        """Bring one letter of a partition to its node; False leaves it in its record, to be taken up again."""
        position, item, publisher, envelope, attempts, holder, reason, key = letter
        target = record.config.dead_letters_of(record.name)
        if target is None:
            return False
        told = {
            "reason": reason.decode(),
            "holder": holder.decode(),
            "attempts": str(attempts),
            "node": record.name,
            "item": item.decode(),
            "publisher": publisher.decode(),
        }
        # Unique for ever: an id that was used twice in the queue must not overwrite the first dead letter.
        item_id = f"{record.incarnation}-{partition}-{position.decode()}"
        if not await self._taken_by_owners(record, target):
            about = {"node": record.name, "item": told["item"], "to": target}
            log.warning("dead letter kept back: its node is another's, or one too many", **about)
            return False
        command = DeadLetter(target, item_id, key.decode(), Jid(publisher.decode()), lettered(envelope, told))
        result = await self._ask(command)
        if not isinstance(result, Published):
            problem = result.problem.value if isinstance(result, Refused) else type(result).__name__
            about = {"node": record.name, "item": told["item"], "to": target}
            log.warning("dead letter not delivered yet", **about, problem=problem)
            return False
        await self._ask(Handed(record.name, record.incarnation, position.decode(), partition))
        return True

    async def _taken_by_owners(self, record: NodeRecord, target: str) -> bool:
        """Make sure that the node for dead letters is there and shares an owner: whoever came first by its name may be anyone."""
        # As it is stored: a lane's record has the administrators for owners, and they are what all nodes share.
        stored = await self._directory.read(record.name)
        if stored is None:
            return False
        owners = [jid for jid, affiliation in stored.affiliations.items() if affiliation is Affiliation.OWNER]
        taker = await self._directory.read(target)
        if taker is None:
            await self._make(record, target, owners)
            taker = await self._directory.read(target)
        return taker is not None and any(taker.affiliation(owner) is Affiliation.OWNER for owner in owners)

    async def _make(self, record: NodeRecord, target: str, owners: list[Jid]) -> None:
        # Tried for ever and with no dead letters of its own: a letter that nobody can take stays there.
        config = NodeConfig(
            title=f"Dead letters of {record.name}"[:200],
            max_deliveries=0,
            dead_letter_node="",
            publish_model=PublishModel.PUBLISHERS,
            access_model=record.config.access_model,
        )
        if not await self._nodes.counted(owners[0], target):
            return
        await self._nodes.make(target, owners[0], config)
        made = await self._directory.read(target)
        if made is not None and len(owners) > 1:
            await self._directory.affiliate(made, dict.fromkeys(owners[1:], Affiliation.OWNER.value))
