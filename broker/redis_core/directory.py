"""The records of nodes and of JIDs in Redis: which nodes exist, how each is set, who created it, who is here.

Each step is one script or one command and safe to repeat; the order of the steps is chosen so that a crash between two
leaves at most a name without a node, which every reader passes over. Must not know partitions' insides.
"""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker import keys
from broker.model.names import Jid, Partition, bare, resource
from broker.model.nodes import MAX_AFFILIATIONS, Affiliation, NodeRecord, restored, stored
from broker.model.options import NodeConfig
from broker.model.problems import CorruptRecord, MalformedRequest, Problem
from broker.model.results import Refused
from broker.redis_core.server import Arguments, Server, Value

GRAVE_SECONDS = 86_400
"""How long a deleted partition is marked as such, so that a late frontend does not open it again."""

IDLE_PRESENCE_SECONDS = 3_600
MOST_PER_JID = 1_000
LISTED = 1_000

_PARTITIONS = "stanzaq#partitions"


@dataclass(frozen=True, slots=True)
class Seat:
    """A subscription as presence knows it: the node and the JID that is subscribed there."""

    node: str
    jid: Jid


class Directory:
    """Reads and writes the records; knows nothing that is not in Redis."""

    def __init__(self, server: Server, journal_records: int, node_quota: int) -> None:
        """Keep journals of `journal_records` and let a JID create `node_quota` nodes."""
        self._server = server
        self._journal_records = journal_records
        self._node_quota = node_quota

    async def read(self, node: str) -> NodeRecord | None:
        """Read a node's record; None when there is no such node."""
        head, options, affiliations = await self._server.commands(
            [
                ("HGETALL", keys.of_node("node", node)),
                ("HGETALL", keys.of_node("options", node)),
                ("HGETALL", keys.of_node("affiliations", node)),
            ]
        )
        if not head:
            return None
        try:
            return NodeRecord(
                node,
                head[b"incarnation"].decode(),
                int(head[b"revision"]),
                restored({name.decode(): value.decode() for name, value in options.items()}),
                {Jid(jid.decode()): Affiliation(value.decode()) for jid, value in affiliations.items()},
            )
        except (KeyError, ValueError, MalformedRequest) as error:
            msg = f"the record of node {node!r} cannot be read: {error}"
            raise CorruptRecord(msg) from error

    async def create(self, node: str, owner: Jid, config: NodeConfig) -> NodeRecord | None:
        """Create a node's record with one owner; None when the node exists."""
        # The name first: a name without a record is passed over, a record without a name would never be swept.
        await self._server.command("ZADD", keys.of_service("names"), "NX", int(time.time() * 1000), node)
        incarnation = secrets.token_hex(4)
        rows = [{"name": name, "value": value} for name, value in stored(config).items()]
        fixed: dict[str, Value] = {"incarnation": incarnation, "owner": owner, "created": int(time.time() * 1000)}
        reply = await self._server.run(self._call("declare", node, fixed, rows))
        if reply[0] != b"ok":
            return None
        return NodeRecord(node, incarnation, 1, config, {owner: Affiliation.OWNER})

    async def configure(self, record: NodeRecord, config: NodeConfig) -> bool:
        """Store a new configuration; False when the record has changed since it was read."""
        rows = [{"name": name, "value": value} for name, value in stored(config).items()]
        fixed: dict[str, Value] = {"incarnation": record.incarnation, "revision": record.revision}
        return bool((await self._server.run(self._call("configure", record.name, fixed, rows)))[0] == b"ok")

    async def affiliate(self, record: NodeRecord, changes: Mapping[Jid, str]) -> Refused | None:
        """Store changed affiliations; refuses when no owner would be left."""
        rows = [{"jid": jid, "affiliation": affiliation} for jid, affiliation in changes.items()]
        fixed: dict[str, Value] = {"incarnation": record.incarnation, "most": MAX_AFFILIATIONS}
        code = (await self._server.run(self._call("affiliate", record.name, fixed, rows)))[0]
        match code:
            case b"ok":
                return None
            case b"no-owner":
                return Refused(Problem.NOT_ACCEPTABLE, "a node keeps at least one owner")
            case b"too-many":
                return Refused(Problem.NOT_ACCEPTABLE, f"a node has at most {MAX_AFFILIATIONS} affiliations")
            case _:
                return Refused(Problem.NODE_NOT_FOUND)

    async def delete(self, record: NodeRecord) -> list[Jid]:
        """Delete the partitions for good, then the record; gives who was subscribed."""
        jids: dict[Jid, None] = {}
        for partition in record.partitions:
            jids.update(dict.fromkeys(await self._delete(partition)))
        await self._forget(record)
        return list(jids)

    async def _forget(self, record: NodeRecord) -> None:
        await self._server.run(self._call("forget", record.name, {"incarnation": record.incarnation}))
        await self._server.command("ZREM", keys.of_service("names"), record.name)

    async def open(self, record: NodeRecord, numbers: Sequence[int] | None = None) -> bool:
        """Bring partitions, all unless named, to the record's revision; False when one of them was deleted."""
        config = record.config
        seconds, micros = await self._server.command("TIME")
        fixed: dict[str, Value] = {
            "revision": record.revision,
            # A later life of the node begins above all tokens of an earlier one: a worker that slept through the change
            # is fenced out by a token that it has, not let in by it.
            # In microseconds: so fast no partition hands out, and below 2^53 it is exact in Lua until the year 2255.
            "token": int(seconds) * 1_000_000 + int(micros),
            "lock_ms": config.lock_seconds * 1000,
            "max_deliveries": config.max_deliveries,
            "dead_letters": "1" if config.dead_letters_of(record.name) else "0",
            "journal_max": self._journal_records,
            "partitions": config.partitions,
            "ordered": "1" if config.ordered else "0",
            "queueing": "1" if config.queueing else "0",
            "keep_ms": config.retention_seconds * 1000,
            "keep_items": config.keep_items,
            "keep_bytes": config.retention_bytes,
        }
        chosen = record.partitions if numbers is None else map(record.partition, numbers)
        calls = [self._server.arguments("open", [keys.of_partition("meta", each)], fixed) for each in chosen]
        replies = await self._server.run_all(calls)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return all(reply[0] == b"ok" for reply in replies)

    async def _delete(self, partition: Partition) -> list[Jid]:
        names = [keys.of_partition(name, partition) for name in self._server.header("delete").keys]
        jids: list[Jid] = []
        scan = b"0"
        while True:
            fixed: dict[str, Value] = {"scan": scan, "grave_seconds": GRAVE_SECONDS}
            _code, scan, part = await self._server.run(self._server.arguments("delete", names, fixed))
            jids.extend(Jid(jid.decode()) for jid in part)
            if scan == b"0":
                return jids

    async def names(self, first: int = 0, count: int = LISTED) -> tuple[str, ...]:
        """Name nodes in order of creation; a name may be of a node that is just coming or going."""
        found = await self._server.command("ZRANGE", keys.of_service("names"), first, first + count - 1)
        return tuple(name.decode() for name in found)

    async def partitions(self, names: Sequence[str]) -> list[Partition]:
        """Give the partitions of those of the nodes that there are."""
        lived = [("HGET", keys.of_node("node", name), "incarnation") for name in names]
        counted = [("HGET", keys.of_node("options", name), _PARTITIONS) for name in names]
        found = await self._server.commands([*lived, *counted])
        lives, counts = found[: len(names)], found[len(names) :]
        return [
            Partition(name, life.decode(), number)
            for name, life, count in zip(names, lives, counts, strict=True)
            if life
            for number in range(int(count or 1))
        ]

    async def concerned(self, names: Sequence[str], frontend: str) -> list[Partition]:
        """Give those partitions where a frontend may have left something: anybody's locks or readers, or a mark of its own."""
        partitions = await self.partitions(names)
        asked = [("EXISTS", keys.of_partition("inflight", partition)) for partition in partitions]
        marked = [("HEXISTS", keys.of_partition("sent", partition), frontend) for partition in partitions]
        read = [("EXISTS", keys.of_partition("outstanding", partition)) for partition in partitions]
        answers = await self._server.commands([*asked, *marked, *read])
        count = len(partitions)
        found = zip(partitions, answers[:count], answers[count : 2 * count], answers[2 * count :], strict=True)
        return [partition for partition, *signs in found if any(signs)]

    async def hunger(self, record: NodeRecord, rows: list[dict[str, Any]]) -> list[list[int]]:
        """Tell which partitions of a node want credit; gives number, locked and ms of waiting of all that do."""
        names = [keys.of_life("hungry", record.name, record.incarnation)]
        found: list[list[int]]
        _code, found = await self._server.run(self._server.arguments("hunger", names, {"now": ""}, rows))
        return found

    async def own(self, jid: Jid, node: str) -> bool:
        """Count a node to its creator's quota; False when the quota is used up."""
        fixed: dict[str, Value] = {"kind": "gained", "node": node, "most": self._node_quota}
        code, known = await self._server.run(self._server.arguments("own", [keys.of_jid("owned", jid)], fixed))
        if code == b"ok":
            return True
        # A crash may have left names of nodes that never came to be: those do not count.
        for name in known:
            if await self.read(name.decode()) is None:
                await self.disown(jid, name.decode())
                return await self.own(jid, node)
        return False

    async def disown(self, jid: Jid, node: str) -> None:
        """Take a node off its creator's quota."""
        fixed: dict[str, Value] = {"kind": "lost", "node": node, "most": self._node_quota}
        await self._server.run(self._server.arguments("own", [keys.of_jid("owned", jid)], fixed))

    async def attend(self, kind: str, jid: Jid, node: str = "") -> tuple[Seat, ...] | None:
        """Note that a JID subscribed, left, or that its resource became available or unavailable.

        Gives the seats to leave, of one that subscribed the seat that it had already; None when the JID has more of them
        than it may.
        """
        whose = bare(jid)
        fixed: dict[str, Value] = {
            "kind": kind,
            "resource": keys.escaped(resource(jid)),
            "node": node,
            "idle_seconds": IDLE_PRESENCE_SECONDS,
            "most": MOST_PER_JID,
        }
        names = [keys.of_jid("resources", whose), keys.of_jid("nodes", whose)]
        reply = await self._server.run(self._server.arguments("attend", names, fixed))
        if reply[0] == b"too-many":
            return None
        seats = []
        for member in reply[1]:
            escaped, _, at = member.decode().partition(" ")
            left = jid if escaped else whose
            seats.append(Seat(at, left))
        return tuple(seats)

    async def seats_of(self, jid: Jid, node: str) -> tuple[Jid, ...]:
        """Give the JIDs of one bare JID that are subscribed to a node."""
        whose = bare(jid)
        found = []
        for member in await self._server.command("SMEMBERS", keys.of_jid("nodes", whose)):
            escaped, _, at = member.decode().partition(" ")
            if at == node:
                found.append(Jid(f"{whose}/{keys.unescaped(escaped)}") if escaped else whose)
        return tuple(found)

    def _call(
        self, name: str, node: str, fixed: Mapping[str, Value], rows: list[dict[str, str]] | None = None
    ) -> Arguments:
        names = [keys.of_node(key, node) for key in self._server.header(name).keys]
        return self._server.arguments(name, names, fixed, rows or [])
