"""The records of nodes and JIDs in Redis: nodes with their configuration, creators and affiliations, and presence.

Each step is one idempotent operation or command. Their order leaves at most a name without a node after a crash, which every
reader skips. Must not know how partitions work.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import structlog

from broker import keys, store_format
from broker.model.frozen import frozen
from broker.model.names import Jid, Partition, bare_jid, domain, resource
from broker.model.nodes.nodes import MAX_AFFILIATIONS, Affiliation, NodeRecord, choose, from_stored, names_of, to_stored
from broker.model.nodes.options import NodeConfig
from broker.model.nodes.pull_subscriptions import is_lease_record, is_pull_subscription
from broker.model.nodes.quotas import counts_for
from broker.model.problems import CoreUnavailable, CorruptRecord, MalformedRequest, OtherFormat, Problem
from broker.model.results import Counted, Refused
from broker.model.roles import Roles, Said
from broker.redis_core.operations.maintenance import read_counts
from broker.redis_core.records import jid_indexes
from broker.redis_core.records.jid_indexes import IDLE_PRESENCE_SECONDS, Entry, Index, Noted
from broker.redis_core.redis_client.client import Line, Server, Value
from broker.store_format import FIRST, FORMAT, LEAST, StoreFormat

log = structlog.get_logger()

_T = TypeVar("_T")

GRAVE_SECONDS = 86_400
"""How long a deleted partition is marked, so that a late frontend does not open it again."""

NAMELESS_MS = 60_000
"""How long a name is listed without a node: whoever lists it creates the node within seconds."""

LISTED = 1_000

_ACCESS_MODEL = "pubsub#access_model"
_PARTITIONS = "stanzaq#partitions"
"""Earlier partition counts, stored with the options so that they are read together with the present one."""


_KNOWN: Mapping[bytes | None, Affiliation] = {each.value.encode(): each for each in Affiliation}

_TOKENS_KEPT = 4
"""Tokens of an account whose groups are kept: the newest counts, in whatever order frontends have seen them."""

_KEPT_SECONDS = 86_400
"""How long groups are kept after their token has ended: longer than what was received by them is held."""


_LISTS = "all_nodes", "leases"
"""The lists of names: of nodes, and of the records of leases over several queues."""


async def in_name_pages(read: Callable[[int], Awaitable[tuple[str, ...]]]) -> AsyncIterator[tuple[str, ...]]:
    """Yield names in the pages by which `read` returns them."""
    first = 0
    while names := await read(first):
        yield names
        first += len(names)


def in_pages(those: Iterable[_T]) -> Iterator[list[_T]]:
    """Yield things in lists of at most `LISTED`: what is asked about them, and answered, has bounded room."""
    rest = iter(those)
    while page := list(islice(rest, LISTED)):
        yield page


@frozen
class SubscriptionRef:
    """A node and a JID that is subscribed there, as presence knows a subscription."""

    node: str
    jid: Jid

    @property
    def entry(self) -> Entry:
        """The entry in the index of the bare JID; resources are escaped, since they may have blanks."""
        return bare_jid(self.jid), f"{keys.escape(resource(self.jid))} {self.node}"

    @staticmethod
    def of(entry: Entry) -> "SubscriptionRef":
        """Read what `entry` wrote."""
        whose, member = entry
        escaped, _, node = member.partition(" ")
        return SubscriptionRef(node, Jid(f"{whose}/{keys.unescape(escaped)}") if escaped else whose)


class NodeStore:
    """Reads and writes the records; keeps all state in Redis."""

    def __init__(self, server: Server, journal_records: int, roles: Roles) -> None:
        """Keep journals of `journal_records`; `roles` say what accounts may do with every node."""
        self._server = server
        self.roles = roles
        self._untold: dict[Jid, Said] = {}
        self._journal_records = journal_records
        self.subscribed, self.asking = Index(server, "nodes"), Index(server, "pending_nodes")
        self.created_nodes = Index(server, "created_nodes")
        self.affiliated = Index(server, "affiliated", evicts=True)

    async def begin(self) -> StoreFormat:
        """Return the format of the store, which is begun where there is none; it may have to be upgraded. Raises OtherFormat."""
        names = [keys.of_service(name) for name in self._server.operations["check_format"].keys]
        call = self._server.write_call("check_format", names, {"format": FORMAT, "least": LEAST})
        answer = await self._server.run(call)
        found = StoreFormat(answer.format, answer.least)
        if not (found.is_usable or found.is_upgradable):
            raise OtherFormat(": ".join(found.refusal()))
        return found

    async def check_format(self) -> None:
        """Check that this version may use the store, by commands of a user who may only read; raises OtherFormat."""
        found = await self.read_format()
        if not found.is_usable:
            raise OtherFormat(": ".join(found.refusal()))

    async def read_format(self) -> StoreFormat:
        """Return the format of the store."""
        return store_format.found(*await self._server.commands(store_format.question()))

    async def note_format(self, node: str, number: int) -> bool:
        """Note that a node is of a format now, and return whether it is there."""
        return (await self._server.run(self._call("note_format", node, {"format": number}))).code == b"ok"  # type: ignore[no-any-return]

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

    async def read_with_admins(self, node: str) -> NodeRecord | None:
        """Read a node's record for authorization: with the roles, and the administrators among its owners."""
        record = await self.read(node)
        return record and record.add_roles(self.roles)

    async def read_node(self, node: str) -> NodeRecord | None:
        """Read the same of a name that a request gives: the record of a lease is not for it."""
        return None if is_lease_record(node) else await self.read_with_admins(node)

    async def read_all(self, names: Sequence[str]) -> list[NodeRecord]:
        """Read many records in few round trips; missing and unreadable ones are skipped."""
        kinds = ("node", "options", "affiliations")
        records: list[NodeRecord] = []
        for first in range(0, len(names), LISTED):
            some = names[first : first + LISTED]
            found = await self._server.reads([("HGETALL", keys.of_node(kind, name)) for name in some for kind in kinds])
            records += _readable(zip(some, found[::3], found[1::3], found[2::3], strict=True))
        return records

    async def records(self, names: Sequence[str]) -> list[NodeRecord]:
        """Read many records without affiliations in few round trips; missing and unreadable ones are skipped."""
        records: list[NodeRecord] = []
        for first in range(0, len(names), LISTED):
            some = names[first : first + LISTED]
            heads = [("HGETALL", keys.of_node("node", name)) for name in some]
            options = [("HGETALL", keys.of_node("options", name)) for name in some]
            found = await self._server.reads([*heads, *options])
            records += _readable(zip(some, found[: len(some)], found[len(some) :], [{}] * len(some), strict=True))
        return records

    async def counts(self, partitions: Sequence[Partition]) -> dict[Partition, Counted]:
        """Count the items of many partitions; those being created, and those that cannot be counted, are skipped."""
        names = self._server.operations["stats"].keys
        found: dict[Partition, Counted] = {}
        for first in range(0, len(partitions), LISTED):
            some = partitions[first : first + LISTED]
            calls = [
                self._server.write_call(
                    "stats",
                    keys.all_of_partition(names, each),
                    {"now": "", "revision": ""},
                )
                for each in some
            ]
            for each, reply in zip(some, await self._server.run_all(calls), strict=True):
                if isinstance(reply, CoreUnavailable):
                    raise reply
                if isinstance(reply, Exception):
                    log.error("a partition cannot be counted", node=each.node, partition=each.number, error=str(reply))
                elif reply.code == b"ok":
                    found[each] = read_counts(self._server.answers("stats").read_rows(reply.rows))
        return found

    async def find_changed(self, after_ms: int, upto_ms: int) -> set[str]:
        """Return the nodes that changed after a time and up to another."""
        found = await self._server.command("ZRANGEBYSCORE", keys.of_service("changed"), f"({after_ms}", upto_ms)
        return {name.decode() for name in found}

    async def count(self) -> int:
        """Count the nodes."""
        return int(await self._server.command("ZCARD", keys.of_service("all_nodes")))

    async def create(
        self,
        node: str,
        owner: Jid,
        config: NodeConfig,
        parent: NodeRecord | None = None,
        destinations: tuple[str, ...] = (),
    ) -> NodeRecord | None:
        """Create a record with one owner: a node's, below a collection, or a lease's. None when there is one of this name."""
        # The name first: readers skip a name without a record, but a record without a name would never be swept.
        created = await self.now_ms()
        await self._list("leases" if destinations else "all_nodes", [created, node])
        affiliated = [] if destinations else [(owner, node)]
        noted = await self.affiliated.note(affiliated, self._has_affiliation)
        incarnation = secrets.token_hex(4)
        rows = [{"name": name, "value": value} for name, value in to_stored(config).items()]
        name, life = (parent.name, parent.incarnation) if parent else ("", "")
        fixed: dict[str, Value] = {"incarnation": incarnation, "owner": owner, "created": created, "format": FORMAT}
        fixed |= {"parent": name, "parent_life": life, "destinations": "\n".join(destinations)}
        answer = await self._server.run(self._call("create_node", node, fixed, rows))
        if answer.code != b"ok":
            await self._remove_noted(affiliated, noted)
            return None
        await self.affiliated.note_done(affiliated)
        affiliations = {owner: Affiliation.OWNER}
        return NodeRecord(node, incarnation, 1, config, affiliations, created, owner, name, life, destinations)

    async def configure(self, record: NodeRecord, renewed: NodeRecord) -> int | None:
        """Store a new configuration and place in the tree; returns the revision, None when the record was changed meanwhile."""
        rows = [{"name": name, "value": value} for name, value in to_stored(renewed.config).items()]
        fixed: dict[str, Value] = {"now": "", "incarnation": record.incarnation, "revision": record.revision}
        fixed |= {"parent": renewed.parent, "parent_life": renewed.parent_life}
        answer = await self._server.run(self._call("update_node", record.name, fixed, rows))
        return int(answer.revision) if answer.code == b"ok" else None

    async def affiliate(self, record: NodeRecord, changes: Mapping[Jid, str]) -> Refused | None:
        """Store changed affiliations; refuses to remove the last owner."""
        gained = [(jid, record.name) for jid, affiliation in changes.items() if affiliation != "none"]
        noted = await self.affiliated.note(gained, self._has_affiliation)
        rows = [{"jid": jid, "affiliation": affiliation} for jid, affiliation in changes.items()]
        fixed: dict[str, Value] = {"now": "", "incarnation": record.incarnation, "most": MAX_AFFILIATIONS}
        code = (await self._server.run(self._call("set_affiliations", record.name, fixed, rows))).code
        if code == b"ok":
            await self.affiliated.note_done(gained)
            return None
        await self._remove_noted(gained, noted)
        match code:
            case b"no-owner":
                return Refused(Problem.NOT_ACCEPTABLE, "a node keeps at least one owner")
            case b"too-many":
                return Refused(Problem.NOT_ACCEPTABLE, f"a node has at most {MAX_AFFILIATIONS} affiliations")
            case _:
                return Refused(Problem.NODE_NOT_FOUND)

    async def delete(self, record: NodeRecord) -> list[Jid]:
        """Delete the partitions for good, then the record; returns the JIDs that were subscribed."""
        before_ms = await self.now_ms()
        jids: dict[Jid, None] = {}
        deleted = 0
        while True:
            for partition in record.partitions[deleted:]:
                jids.update(dict.fromkeys(await self._delete(partition)))
            deleted = len(record.partitions)
            if await self._remove_record(record):
                break
            # Somebody may have become a member meanwhile, whose entry in the index goes too.
            changed = await self.read_with_admins(record.name)
            if changed is None or changed.incarnation != record.incarnation:
                break
            record = changed
        await self._forget(record.name)
        # Keep the indexes short: entries that a crash leaves there are removed when room is needed or when they are read.
        await self.subscribed.remove([SubscriptionRef(record.name, jid).entry for jid in jids], before_ms)
        if record.destinations:
            return list(jids)
        await self.affiliated.remove([(jid, record.name) for jid in record.affiliations], before_ms)
        if record.creator is not None:
            counted = _count_entries(record.creator, record.name)
            await self.created_nodes.remove(counted, before_ms)
            await self._server.commands(
                [("HDEL", keys.of_jid("created_partitions", jid), name) for jid, name in counted]
            )
        return list(jids)

    async def _remove_record(self, record: NodeRecord) -> bool:
        """Delete a node's record; False if it has changed since it was read."""
        fixed: dict[str, Value] = {"incarnation": record.incarnation, "revision": record.revision}
        return bool((await self._server.run(self._call("delete_node", record.name, fixed))).code == b"ok")

    async def unlist(self, name: str) -> None:
        """Take a name off the list that has had no node for a minute: whoever was to create that has failed."""
        asked = [("ZSCORE", keys.of_service(each), name) for each in _LISTS]
        *listed, exists = await self._server.commands([*asked, ("EXISTS", keys.of_node("node", name))])
        since = next(filter(None, listed), None)
        if since and not exists and await self.now_ms() - float(since) > NAMELESS_MS:
            await self._forget(name)

    async def _forget(self, name: str) -> None:
        """Remove what the service keeps under the name of a node that is not there."""
        await self._server.commands(
            [
                *(("ZREM", keys.of_service(each), name) for each in (*_LISTS, "changed")),
                ("UNLINK", keys.of_node("hour", name)),
            ]
        )
        # A node that was created under this name meanwhile found it listed.
        if (again := await self.read(name)) is not None:
            await self.relist([again])

    async def open(self, record: NodeRecord, numbers: Sequence[int] | None = None) -> bool:
        """Bring partitions, all unless named, to the record's revision; returns False when one of them is deleted.

        A partition that is newer than the record stays as it is: the record is advanced beyond it and must be read again.
        """
        config = record.config
        fixed: dict[str, Value] = {
            "revision": record.revision,
            "lock_ms": config.lock_seconds * 1000,
            "max_deliveries": config.max_deliveries,
            "journal_max": self._journal_records,
        }
        options = {**config.kept_by_partitions(record.name), "above": "1" if record.parent else ""}
        rows = [{"kind": "option", "name": name, "value": value} for name, value in options.items()]
        rows += [{"kind": "weight", "name": tenant, "value": weight} for tenant, weight in config.weights]
        chosen = record.partitions if numbers is None else map(record.partition, numbers)
        names = self._server.operations["open_partition"].keys
        calls = [
            self._server.write_call("open_partition", [keys.of_partition(name, each) for name in names], fixed, rows)
            for each in chosen
        ]
        replies = await self._server.run_all(calls)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        newer = [int(reply.revision) for reply in replies if reply.code == b"newer"]
        if newer:
            await self.advance(record, max(newer))
        return all(reply.code != b"deleted" for reply in replies)

    async def advance(self, record: NodeRecord, revision: int) -> None:
        """Make a node's record at least as new as this revision: such a record has been seen.

        A partition gets its revision from the record, and the record's only rises. A record with a lower one has lost changes
        (guarantee 1 allows a second), and no cached record is the truth either: this makes the record newer than all of its
        partitions, which then follow it. The operation compares when it runs, so a late call with an old record changes
        nothing, and of two frontends that do this at once the second finds it done.
        """
        fixed: dict[str, Value] = {"now": "", "incarnation": record.incarnation, "revision": revision}
        answer = await self._server.run(self._call("raise_revision", record.name, fixed))
        if answer.code == b"ok" and answer.behind:
            log.warning("a node's record was older than its partitions: changes are lost", node=record.name)

    async def _delete(self, partition: Partition) -> list[Jid]:
        names = [keys.of_partition(name, partition) for name in self._server.operations["delete_partition"].keys]
        jids: list[Jid] = []
        scan = b"0"
        while True:
            fixed: dict[str, Value] = {"scan": scan, "grave_seconds": GRAVE_SECONDS}
            answer = await self._server.run(self._server.write_call("delete_partition", names, fixed))
            jids.extend(Jid(jid.decode()) for jid in answer.jids)
            if (scan := answer.scan) == b"0":
                return jids

    async def relist(self, records: Sequence[NodeRecord]) -> None:
        """Add nodes to the list of names again: Redis may have lost an entry alone, and an unlisted node is never swept."""
        for each in _LISTS:
            those = [record for record in records if each == ("leases" if record.destinations else "all_nodes")]
            pairs = [part for record in those for part in (record.created_ms, record.name)]
            if pairs:
                await self._list(each, pairs)

    async def _list(self, where: str, pairs: Sequence[Value]) -> None:
        """Add names to one of the lists, and the format with them: Redis may have lost all keys of the service.

        As if the store were of the first format: nodes that are not upgraded yet are then found, and the others stay.
        """
        names, stamp = keys.of_service(where), keys.of_service("store")
        notes = [("HSETNX", stamp, "format", FIRST), ("HSETNX", stamp, "least", LEAST)]
        await self._server.commands([*notes, ("ZADD", names, "NX", *pairs)])

    async def names(self, first: int = 0, count: int = LISTED) -> tuple[str, ...]:
        """Return names of nodes in order of creation; some may be of nodes that are being created or deleted."""
        found = await self._server.command("ZRANGE", keys.of_service("all_nodes"), first, first + count - 1)
        return _decode_names(found)

    async def swept_names(self, first: int = 0, count: int = LISTED) -> tuple[str, ...]:
        """Return names of all that has partitions: those of nodes, and then those of the records of leases."""
        nodes, leases = map(keys.of_service, _LISTS)
        asked = ("ZRANGE", nodes, first, first + count - 1), ("ZCARD", nodes)
        found, all_nodes = await self._server.commands(asked)
        if len(found) < count:
            begin = max(0, first - all_nodes)
            found += await self._server.command("ZRANGE", leases, begin, begin + count - len(found) - 1)
        return _decode_names(found)

    async def incarnations(self, names: Sequence[str]) -> dict[str, str]:
        """Return the incarnations of those nodes that exist."""
        found = await self._server.commands([("HGET", keys.of_node("node", name), "incarnation") for name in names])
        return {name: life.decode() for name, life in zip(names, found, strict=True) if life}

    async def are_present(self, records: Sequence[NodeRecord]) -> list[bool]:
        """Return whether each of these records has the incarnation and the revision of the stored one."""
        asked = [("HMGET", keys.of_node("node", record.name), "incarnation", "revision") for record in records]
        lives = [[record.incarnation.encode(), str(record.revision).encode()] for record in records]
        return [found == life for found, life in zip(await self._server.reads(asked), lives, strict=True)]

    async def partitions(self, names: Sequence[str]) -> list[Partition]:
        """Return the partitions of those nodes that exist; the first one of a node whose record cannot be read."""
        return [each async for page in self.partition_pages(names) for each in page]

    async def partition_pages(self, names: Sequence[str]) -> AsyncIterator[list[Partition]]:
        """Yield the same in pages of at most `LISTED`, however many partitions a node has."""
        lived = [("HGET", keys.of_node("node", name), "incarnation") for name in names]
        counted = [("HGET", keys.of_node("options", name), _PARTITIONS) for name in names]
        found = await self._server.reads([*lived, *counted])
        incarnations, counts = found[: len(names)], found[len(names) :]
        those = (
            Partition(name, life.decode(), number)
            for name, life, count in zip(names, incarnations, counts, strict=True)
            if life
            for number in range(int(count) if count and count.isdigit() else 1)
        )
        for page in in_pages(those):
            yield page

    async def access(self, names: Sequence[str], jid: Jid) -> list[tuple[str, str]]:
        """Return the affiliation of a command's sender with each node, and its access model; empty for the defaults."""
        theirs = names_of(jid, self.roles.groups_of(jid))
        standings = [("HMGET", keys.of_node("affiliations", name), *theirs) for name in names]
        models = [("HGET", keys.of_node("options", name), _ACCESS_MODEL) for name in names]
        found = await self._server.commands([*standings, *models])
        words = [has.value if (has := choose([*map(_KNOWN.get, each)])) else "" for each in found[: len(names)]]
        return list(zip(words, ((model or b"").decode() for model in found[len(names) :]), strict=True))

    async def find_unfinished(self, names: Sequence[str]) -> set[str]:
        """Return the nodes with members of groups or with requests for subscriptions: steps about these may be unfinished."""
        asked = [("EXISTS", *(keys.of_node(each, name) for each in ("members", "pending"))) for name in names]
        found = await self._server.commands(asked)
        return {name for name, some in zip(names, found, strict=True) if some}

    async def find_partitions_of(self, partitions: Sequence[Partition], frontend: str) -> list[Partition]:
        """Return those of the partitions where a frontend may have left something: with locks, readers, or its session."""
        held = [("EXISTS", *keys.all_of_partition(("inflight", "uncommitted"), partition)) for partition in partitions]
        began = [("HEXISTS", keys.of_partition("meta", partition), f"session/{frontend}") for partition in partitions]
        answers = await self._server.reads([*held, *began])
        found = zip(partitions, answers[: len(partitions)], answers[len(partitions) :], strict=True)
        return [partition for partition, *signs in found if any(signs)]

    async def count_owned(self, jid: Jid, node: str, most: int) -> bool:
        """Count a node to the quota of its creator, or of the creator's domain; False when it has `most`."""
        (noted,) = await self.created_nodes.note([(jid, node)], self._find_created, most)
        return noted is not None

    async def count_partitions(self, jid: Jid, node: str, count: int, most: int) -> int | None:
        """Count a node's partitions to the quota of its creator, or of the creator's domain.

        Returns None, or how many the other nodes have if they leave no room.
        """
        fixed: dict[str, Value] = {"now": "", "node": node, "count": count, "most": most}
        names = [keys.of_jid(name, jid) for name in self._server.operations["count_partitions"].keys]
        answer = await self._server.run(self._server.write_call("count_partitions", names, fixed))
        if answer.code == b"measure":
            # A node of an earlier version has not been counted, or one is gone or was not changed.
            entries = [(jid, member) for member in await self.created_nodes.members(jid)]
            await self.created_nodes.check(entries, self._find_created)
            records = await self.records([member for _jid, member in entries])
            counts = {node: count} | {record.name: record.config.partitions for record in records}
            rows: list[dict[str, Value]] = [{"node": name, "count": each} for name, each in counts.items()]
            answer = await self._server.run(self._server.write_call("count_partitions", names, fixed, rows))
        return None if answer.code == b"ok" else int(answer.count)

    async def uncount_owned(self, jid: Jid, node: str) -> None:
        """Uncount a node that was not created; one of this name that was created before still counts."""
        counted, now_ms = _count_entries(jid, node), await self.now_ms()
        true = await self._find_created(counted)
        await self.created_nodes.remove([entry for entry in counted if entry not in true], now_ms)

    async def _find_created(self, entries: Sequence[Entry]) -> set[Entry]:
        asked = [("HGET", keys.of_node("node", node), "creator") for _jid, node in entries]
        found = zip(entries, await self._server.commands(asked), strict=True)
        return {
            entry for entry, creator in found if creator is not None and counts_for(entry[0], Jid(creator.decode()))
        }

    async def track_presence(self, jid: Jid, *, here: bool) -> list[SubscriptionRef]:
        """Record that a resource came or went; returns the subscriptions to end."""
        whose = bare_jid(jid)
        fixed: dict[str, Value] = {
            "now": "",
            "kind": "available" if here else "unavailable",
            "resource": keys.escape(resource(jid)),
            "idle_seconds": IDLE_PRESENCE_SECONDS,
            "most": jid_indexes.MOST_PER_JID,
        }
        names = [keys.of_jid(name, whose) for name in self._server.operations["track_presence"].keys]
        answer = await self._server.run(self._server.write_call("track_presence", names, fixed))
        return [SubscriptionRef.of((whose, member.decode())) for member in answer.members]

    async def subscription_refs(self, jid: Jid, index: Index | None = None) -> list[SubscriptionRef]:
        """Return the subscriptions of one bare JID, or the entries of another index; some may be outdated."""
        whose = bare_jid(jid)
        found = [SubscriptionRef.of((whose, member)) for member in await (index or self.subscribed).members(whose)]
        return sorted(found, key=lambda ref: (ref.node, ref.jid))

    async def find_subscribed_jids(self, jid: Jid, node: str) -> tuple[Jid, ...]:
        """Return the JIDs of one bare JID that are subscribed to a node."""
        return tuple(ref.jid for ref in await self.subscription_refs(jid) if ref.node == node)

    async def affiliations_of(self, jid: Jid) -> list[tuple[str, Affiliation]]:
        """Return the affiliations of a command's sender, at most `MOST_PER_JID` of its own and of each of its groups.

        Outdated entries are removed from the indexes. An affiliation that this version does not know is left out.
        """
        theirs = names_of(jid, self.roles.groups_of(jid))
        members = await asyncio.gather(*map(self.affiliated.members, theirs))
        entries = [(each, name) for each, nodes in zip(theirs, members, strict=True) for name in nodes]
        found = dict(zip(entries, await self._affiliations(entries), strict=True))
        await self.affiliated.check([entry for entry, value in found.items() if value is None], self._has_affiliation)
        has = {entry: _KNOWN.get(value) for entry, value in found.items()}
        counts = {name: choose([has.get((each, name)) for each in theirs]) for _, name in entries}
        return sorted((name, affiliation) for name, affiliation in counts.items() if affiliation)

    async def _remove_noted(self, entries: Sequence[Entry], noted: Sequence[Noted | None]) -> None:
        """Remove noted entries whose change failed; entries known before stay."""
        for entry, each in zip(entries, noted, strict=True):
            if each is not None and not each.existed:
                await self.affiliated.remove([entry], each.at_ms)

    async def _has_affiliation(self, entries: Sequence[Entry]) -> set[Entry]:
        found = zip(entries, await self._affiliations(entries), strict=True)
        return {entry for entry, affiliation in found if affiliation is not None}

    async def _affiliations(self, entries: Sequence[Entry]) -> list[bytes | None]:
        return await self._server.commands([("HGET", keys.of_node("affiliations", node), jid) for jid, node in entries])

    async def note_token(self, jid: Jid, said: Said) -> None:
        """Note what a verified token says, and its groups for all processes, which judge subscriptions by them."""
        if self.roles.note(jid, said) and said.groups is not None:
            self._untold[jid] = said
        if (untold := self._untold.get(jid)) is None:
            return
        name, left_ms = keys.of_jid("token_groups", jid), int((untold.ends - time.time() + _KEPT_SECONDS) * 1000)
        told = [
            ("ZADD", name, "GT", str(untold.issued), "\n".join(untold.groups or ())),
            ("ZREMRANGEBYRANK", name, 0, -_TOKENS_KEPT - 1),
            ("PEXPIRE", name, left_ms, "NX"),
            ("PEXPIRE", name, left_ms, "GT"),
        ]
        # While Redis is full or away, a later request tells it.
        with contextlib.suppress(CoreUnavailable):
            await self._server.commands(told)
            self._untold.pop(jid, None)

    def forget_tokens(self) -> None:
        """Forget what tokens have said, whose settings are others now."""
        self.roles.forget()
        self._untold.clear()

    async def find_forbidden(self, record: NodeRecord, jids: Collection[Jid]) -> list[Jid]:
        """Return which of a node's subscribers may not read it.

        Groups count for pull subscriptions, by the newest token that any process has seen, also if it has ended: what is held
        stays, and each receive is judged for itself. Whoever subscribes over XMPP has no token.
        """
        groups: dict[Jid, Sequence[Jid]] = {}
        for page in in_pages(filter(is_pull_subscription, jids)) if record.names_groups else ():
            asked = [("ZRANGE", keys.of_jid("token_groups", bare_jid(each)), 0, 0, "REV") for each in page]
            for each, newest in zip(page, await self._server.reads(asked), strict=True):
                groups[each] = [Jid(group) for said in newest or () for group in said.decode().split("\n")]
        return [each for each in jids if not record.is_readable(bare_jid(each), groups.get(each, ()))]

    async def now_ms(self) -> int:
        """Return Redis's time."""
        return await self._server.now_ms()

    def _call(self, name: str, node: str, fixed: Mapping[str, Value], rows: list[dict[str, str]] | None = None) -> Line:
        names = [keys.of_node(key, node) for key in self._server.operations[name].keys]
        return self._server.write_call(name, names, fixed, rows or [])


def _count_entries(creator: Jid, node: str) -> list[Entry]:
    """Return the entries that count a node."""
    return [(subject, node) for subject in dict.fromkeys((creator, Jid(domain(creator))))]


def _readable(
    parts: Iterable[
        tuple[str, Mapping[bytes, bytes] | None, Mapping[bytes, bytes] | None, Mapping[bytes, bytes] | None]
    ],
) -> Iterator[NodeRecord]:
    """Read the parts of records, without nodes that are missing; an unreadable one is reported to who uses its node."""
    for name, head, options, affiliations in parts:
        if head and options is not None and affiliations is not None:
            with contextlib.suppress(CorruptRecord):
                yield _record(name, head, options, affiliations)


def _decode_names(names: Sequence[bytes]) -> tuple[str, ...]:
    # Only somebody with redis-cli writes a name that is no text: it has no node.
    return tuple(name.decode(errors="replace") for name in names)


def _record(
    node: str, head: Mapping[bytes, bytes], options: Mapping[bytes, bytes], affiliations: Mapping[bytes, bytes]
) -> NodeRecord:
    try:
        return NodeRecord(
            node,
            head[b"incarnation"].decode(),
            int(head[b"revision"]),
            from_stored({name.decode(): value.decode() for name, value in options.items()}),
            {Jid(jid.decode()): Affiliation(value.decode()) for jid, value in affiliations.items()},
            int(head.get(b"created", 0)),
            Jid(head[b"creator"].decode()) if b"creator" in head else None,
            head.get(b"parent", b"").decode(),
            head.get(b"parent_life", b"").decode(),
            tuple(filter(None, head.get(b"destinations", b"").decode().split("\n"))),
        )
    except (KeyError, ValueError, MalformedRequest) as error:
        msg = f"the record of node {node!r} cannot be read: {error}"
        raise CorruptRecord(msg) from error
