"""Stored subscriptions that wait for an owner's approval. Must not know who approves, or what follows.

Each is stored with its node and in an index by JID. The index entry is written first and removed last: an entry without a
stored subscription is skipped.
"""

from collections.abc import Sequence
from urllib.parse import quote, unquote

import structlog

from broker import keys
from broker.model.commands import Subscribe
from broker.model.frozen import frozen
from broker.model.items.qos import Sending
from broker.model.names import Jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.tree import Scope
from broker.model.problems import Problem
from broker.model.results import Refused
from broker.redis_core.records import jid_indexes
from broker.redis_core.records.jid_indexes import Entry
from broker.redis_core.records.store import NodeStore, SubscriptionRef
from broker.redis_core.redis_client.client import Answer, Server, Value

log = structlog.get_logger()

MOST = 1_000
"""Subscriptions that may wait at a node."""

MOST_OF_ONE = 20
"""Subscriptions that may wait for one bare JID: workers of one account, and their resources before the last reconnects."""

LATE_MS = 5_000
"""How long a frontend may take to make an approved subscription before another one does."""

_TOO_MANY = Refused(Problem.TOO_MANY_SUBSCRIPTIONS, f"{MOST} subscriptions wait for approval here, the maximum")
_WAITS = Refused(Problem.PENDING_SUBSCRIPTION, "your subscription waits for an owner's approval")


@frozen
class ClaimedRequest:
    """A subscription that a frontend has claimed to make; `stamp` says when, and so identifies the claim."""

    command: Subscribe
    stamp: str


def encode(command: Subscribe) -> str:
    """Encode a subscribe request; no part of it has a blank."""
    credit, epoch = ("-" if number is None else str(number) for number in (command.credit, command.epoch))
    partitions = ",".join(map(str, command.partitions))
    scope = str(command.scope).replace(" ", ":") if command.scope else ""
    words = [
        credit,
        str(command.sending),
        command.group,
        epoch,
        command.start,
        partitions,
        str(command.until_ms),
        scope,
    ]
    if command.selector:
        words.append(quote(command.selector))
    return " ".join(word or "-" for word in words)


def decode(node: str, jid: Jid, request: str) -> Subscribe:
    """Decode what `encode` wrote, as the subscriber's own request."""
    words = ("" if word == "-" else word for word in request.split(" "))
    # Scope and selector are missing in requests from before these existed.
    credit, word, group, epoch, start, partitions, until, *later = words
    scope, selector = (*later, "", "")[:2]
    sending = Sending.parse(word)
    return Subscribe(
        node,
        jid,
        jid,
        int(credit) if credit else None,
        sending.qos,
        tuple(map(int, partitions.split(","))) if partitions else (),
        group,
        int(epoch) if epoch else None,
        start,
        int(until),
        Scope.parse(scope.replace(":", " ")) if scope else None,
        unquote(selector),
        # Made once, however often it is claimed.
        again=True,
        batch=sending.batch,
    )


class PendingList:
    """Reads and writes pending subscriptions; keeps all state in Redis."""

    def __init__(self, server: Server, store: NodeStore) -> None:
        """Use `server`; `store` keeps the index."""
        self._server = server
        self._store = store
        self._index = store.asking

    async def add(self, record: NodeRecord, command: Subscribe) -> Refused | bool:
        """Store a pending subscription; returns whether it is the first of its bare JID at the node."""
        entry = SubscriptionRef(record.name, command.jid).entry
        (noted,) = await self._index.note([entry], self._find_waiting)
        if noted is None:
            return Refused(
                Problem.TOO_MANY_SUBSCRIPTIONS, f"{jid_indexes.MOST_PER_JID} subscriptions of yours wait for approval"
            )
        answer = await self._run(
            "request_subscription",
            record.name,
            now="",
            incarnation=record.incarnation,
            jid=command.jid,
            request=encode(command),
            most=MOST,
            most_each=MOST_OF_ONE,
        )
        if answer.code == b"ok":
            await self._index.note_done([entry])
            if answer.oldest:
                await self._index.remove([SubscriptionRef(record.name, Jid(answer.oldest.decode())).entry])
            return not answer.count
        if answer.code == b"pending-subscription":
            await self._index.note_done([entry])
            return _WAITS
        await self._index.remove([entry], noted.at_ms)
        return _TOO_MANY if answer.code == b"too-many" else Refused(Problem.NODE_NOT_FOUND)

    async def all(self, node: str) -> dict[Jid, Subscribe]:
        """Return all pending subscriptions of a node, oldest first; one that cannot be read is logged and skipped."""
        found = await self._server.command("HGETALL", keys.of_node("pending", node))
        requests: list[tuple[int, Jid, Subscribe]] = []
        for name, line in found.items():
            try:
                since, _claimed, request = line.decode().split(" ", 2)
                jid = Jid(name.decode())
                requests.append((int(since), jid, decode(node, jid, request)))
            except ValueError as error:
                told = {"node": node, "jid": name.decode(errors="replace"), "error": str(error)}
                log.warning("a pending subscription cannot be read", **told)
        return {jid: command for _since, jid, command in sorted(requests, key=lambda each: each[:2])}

    async def jids(self, node: str) -> list[Jid]:
        """Return the JIDs of all pending subscriptions of a node."""
        return [Jid(jid.decode()) for jid in await self._server.command("HKEYS", keys.of_node("pending", node))]

    async def waits(self, node: str, jid: Jid) -> bool:
        """Return whether a JID has a pending subscription at a node."""
        return bool(await self._server.command("HEXISTS", keys.of_node("pending", node), jid))

    async def counts(self, nodes: Sequence[str]) -> list[int]:
        """Count the pending subscriptions of each node."""
        return await self._server.commands([("HLEN", keys.of_node("pending", node)) for node in nodes])

    async def of(self, jid: Jid) -> list[SubscriptionRef]:
        """Return the pending subscriptions of one bare JID at all nodes."""
        refs = await self._store.subscription_refs(jid, self._index)
        waiting = await self._find_waiting([ref.entry for ref in refs])
        return [ref for ref in refs if ref.entry in waiting]

    async def claim(self, node: str, jid: Jid) -> ClaimedRequest | None:
        """Claim one to make the subscription; None when it no longer waits or another frontend has claimed it."""
        answer = await self._run("claim_pending", node, now="", jid=jid, late_ms=LATE_MS)
        if answer.code != b"ok":
            return None
        return ClaimedRequest(decode(node, jid, answer.request.decode()), answer.stamp.decode())

    async def remove(self, node: str, jid: Jid, stamp: str = "") -> bool | None:
        """Remove a pending subscription, unless another frontend has claimed it since `stamp`.

        Returns whether this call removed it; None when another has claimed it.
        """
        answer = await self._run("remove_pending", node, jid=jid, stamp=stamp)
        if answer.code == b"ok":
            await self._index.remove([SubscriptionRef(node, jid).entry])
            return True
        return None if answer.code == b"waiting" else False

    async def _find_waiting(self, entries: Sequence[Entry]) -> set[Entry]:
        refs = [SubscriptionRef.of(entry) for entry in entries]
        asked = [("HEXISTS", keys.of_node("pending", ref.node), ref.jid) for ref in refs]
        return {entry for entry, there in zip(entries, await self._server.commands(asked), strict=True) if there}

    async def _run(self, operation: str, node: str, **fixed: Value) -> Answer:
        names = [keys.of_node(key, node) for key in self._server.operations[operation].keys]
        return await self._server.run(self._server.write_call(operation, names, fixed))
