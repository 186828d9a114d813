"""The records of nodes and of JIDs in Redis: which nodes exist, how each is set, who created it, who is here.

Each step is one script or one command and safe to repeat; the order of the steps is chosen so that a crash between two
leaves at most a name without a node, which every reader passes over. Must not know partitions' insides.
"""

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker import keys
from broker.model.names import Jid, Partition, bare, resource
from broker.model.nodes import MAX_AFFILIATIONS, Affiliation, NodeRecord, restored, stored
from broker.model.options import NodeConfig, NodeState
from broker.model.problems import CorruptRecord, MalformedRequest, Problem
from broker.model.results import Counted, Refused
from broker.redis_core.server import Arguments, Server, Value

GRAVE_SECONDS = 86_400
"""How long a deleted partition is marked as such, so that a late frontend does not open it again."""

IDLE_PRESENCE_SECONDS = 3_600
MOST_PER_JID = 1_000
LISTED = 1_000

_COMING_MS = 60_000
"""How old the note of an affiliation has to be before its absence counts: a note comes first."""

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
        return _record(node, head, options, affiliations)

    async def records(self, names: Sequence[str]) -> list[NodeRecord]:
        """Read many records in few round trips, without affiliations; what is just coming or going is passed over."""
        records: list[NodeRecord] = []
        for first in range(0, len(names), LISTED):
            some = names[first : first + LISTED]
            heads = [("HGETALL", keys.of_node("node", name)) for name in some]
            options = [("HGETALL", keys.of_node("options", name)) for name in some]
            found = await self._server.commands([*heads, *options])
            parts = zip(some, found[: len(some)], found[len(some) :], strict=True)
            records += [_record(name, head, fields, {}) for name, head, fields in parts if head]
        return records

    async def counts(self, partitions: Sequence[Partition]) -> dict[Partition, Counted]:
        """Count what partitions hold, in bulk; one that is just being made is passed over."""
        names = self._server.header("stats").keys
        found: dict[Partition, Counted] = {}
        for first in range(0, len(partitions), LISTED):
            some = partitions[first : first + LISTED]
            calls = [
                self._server.arguments(
                    "stats",
                    [keys.of_partition(name, each) for name in names],
                    {"now": "", "revision": "", "number": each.number},
                )
                for each in some
            ]
            for each, reply in zip(some, await self._server.run_all(calls), strict=True):
                if isinstance(reply, Exception):
                    raise reply
                if reply[0] == b"ok":
                    found[each] = Counted(*reply[1])
        return found

    async def count(self) -> int:
        """Count the nodes."""
        return int(await self._server.command("ZCARD", keys.of_service("names")))

    async def create(
        self, node: str, owner: Jid, config: NodeConfig, parent: NodeRecord | None = None
    ) -> NodeRecord | None:
        """Create a node's record with one owner, below a collection; None when the node exists."""
        # The name first: a name without a record is passed over, a record without a name would never be swept.
        await self._server.command("ZADD", keys.of_service("names"), "NX", int(time.time() * 1000), node)
        await self.stand([owner], node)
        incarnation = secrets.token_hex(4)
        rows = [{"name": name, "value": value} for name, value in stored(config).items()]
        created = int(time.time() * 1000)
        name, life = (parent.name, parent.incarnation) if parent else ("", "")
        fixed: dict[str, Value] = {"incarnation": incarnation, "owner": owner, "created": created}
        fixed |= {"parent": name, "parent_life": life}
        reply = await self._server.run(self._call("declare", node, fixed, rows))
        if reply[0] != b"ok":
            return None
        return NodeRecord(node, incarnation, 1, config, {owner: Affiliation.OWNER}, created, owner, name, life)

    async def configure(self, record: NodeRecord, renewed: NodeRecord) -> bool:
        """Store a new configuration and place in the tree; False when the record has changed since it was read."""
        rows = [{"name": name, "value": value} for name, value in stored(renewed.config).items()]
        fixed: dict[str, Value] = {"incarnation": record.incarnation, "revision": record.revision}
        fixed |= {"parent": renewed.parent, "parent_life": renewed.parent_life}
        return bool((await self._server.run(self._call("configure", record.name, fixed, rows)))[0] == b"ok")

    async def affiliate(self, record: NodeRecord, changes: Mapping[Jid, str]) -> Refused | None:
        """Store changed affiliations; refuses when no owner would be left."""
        await self.stand([jid for jid, affiliation in changes.items() if affiliation != "none"], record.name)
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
        before_ms = await self.now_ms()
        await self._forget(record)
        # The lists stay short: what a crash leaves there goes when it is next read.
        await self.unstand([(jid, record.name) for jid in record.affiliations], before_ms)
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
            # A collection is the bank of the leaves below it, however many.
            "partitions": 0 if config.collects else config.partitions,
            "ordered": "1" if config.ordered else "0",
            "queueing": "1" if config.queueing else "0",
            "keep_ms": config.retention_seconds * 1000,
            "keep_items": config.keep_items,
            "keep_bytes": config.retention_bytes,
            "paused": "1" if config.state is NodeState.PAUSED else "0",
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
        """Note that a JID subscribed, left, waits for approval or does no more, or that its resource came or went.

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
        names = [keys.of_jid(name, whose) for name in self._server.header("attend").keys]
        reply = await self._server.run(self._server.arguments("attend", names, fixed))
        if reply[0] == b"too-many":
            return None
        seats = []
        for member in reply[1]:
            escaped, _, at = member.decode().partition(" ")
            left = jid if escaped else whose
            seats.append(Seat(at, left))
        return tuple(seats)

    async def seats(self, jid: Jid, index: str = "nodes") -> list[Seat]:
        """Give where one bare JID is subscribed, or with the index `asked` waits for it; some may be there no more."""
        whose = bare(jid)
        found = []
        for member in await self._server.command("SMEMBERS", keys.of_jid(index, whose)):
            escaped, _, at = member.decode().partition(" ")
            found.append(Seat(at, Jid(f"{whose}/{keys.unescaped(escaped)}") if escaped else whose))
        return sorted(found, key=lambda seat: (seat.node, seat.jid))

    async def seats_of(self, jid: Jid, node: str) -> tuple[Jid, ...]:
        """Give the JIDs of one bare JID that are subscribed to a node."""
        return tuple(seat.jid for seat in await self.seats(jid) if seat.node == node)

    async def stand(self, jids: Iterable[Jid], node: str) -> None:
        """Note that these bare JIDs are about to have an affiliation with a node."""
        await self._stand("noted", [(jid, node) for jid in jids], 0)

    async def unstand(self, pairs: Sequence[tuple[Jid, str]], before_ms: int) -> None:
        """Take nodes off the lists of bare JIDs, unless they were noted anew after `before_ms`."""
        await self._stand("forgotten", pairs, before_ms)

    async def standings(self, jid: Jid) -> list[tuple[str, Affiliation]]:
        """Give a bare JID's affiliations, at most `MOST_PER_JID`; what has turned out to be over is taken off its list."""
        before_ms = await self.now_ms() - _COMING_MS
        names = [name.decode() for name in await self._server.command("ZRANGE", keys.of_jid("affiliated", jid), 0, -1)]
        asked = [("HGET", keys.of_node("affiliations", name), jid) for name in names]
        found = dict(zip(names, await self._server.commands(asked), strict=True))
        await self.unstand([(jid, name) for name, standing in found.items() if standing is None], before_ms)
        return sorted((name, Affiliation(value.decode())) for name, value in found.items() if value is not None)

    async def now_ms(self) -> int:
        """Give Redis's time."""
        seconds, micros = await self._server.command("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def _stand(self, kind: str, pairs: Sequence[tuple[Jid, str]], before_ms: int) -> None:
        fixed: dict[str, Value] = {"now": "", "kind": kind, "before": before_ms, "most": MOST_PER_JID}
        calls = [
            self._server.arguments("stand", [keys.of_jid("affiliated", jid)], {**fixed, "node": node})
            for jid, node in pairs
        ]
        for reply in await self._server.run_all(calls):
            if isinstance(reply, Exception):
                raise reply

    def _call(
        self, name: str, node: str, fixed: Mapping[str, Value], rows: list[dict[str, str]] | None = None
    ) -> Arguments:
        names = [keys.of_node(key, node) for key in self._server.header(name).keys]
        return self._server.arguments(name, names, fixed, rows or [])


def _record(
    node: str, head: Mapping[bytes, bytes], options: Mapping[bytes, bytes], affiliations: Mapping[bytes, bytes]
) -> NodeRecord:
    try:
        return NodeRecord(
            node,
            head[b"incarnation"].decode(),
            int(head[b"revision"]),
            restored({name.decode(): value.decode() for name, value in options.items()}),
            {Jid(jid.decode()): Affiliation(value.decode()) for jid, value in affiliations.items()},
            int(head.get(b"created", 0)),
            Jid(head[b"creator"].decode()) if b"creator" in head else None,
            head.get(b"parent", b"").decode(),
            head.get(b"parent_life", b"").decode(),
        )
    except (KeyError, ValueError, MalformedRequest) as error:
        msg = f"the record of node {node!r} cannot be read: {error}"
        raise CorruptRecord(msg) from error
