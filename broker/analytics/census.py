"""The state of every partition now: waiting items, open deliveries and credit. Knows the partitions' Redis keys.

Plain commands read each partition in a few round trips, without a transaction. The partitions are not read at one instant.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (what everybody calls it)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType
from redis.exceptions import MovedError, ResponseError

from broker import keys
from broker.analytics.faults import Unreadable
from broker.analytics.source import columns
from broker.analytics.source.fetch import WITHOUT_BODIES
from broker.analytics.source.offsets import Id
from broker.analytics.source.options import Options
from broker.analytics.source.servers import Link, Route, Servers
from broker.analytics.source.snapshot import list_keys
from broker.journal.schema import JournalPartition
from broker.model.names import Partition

SCHEMA: Final = StructType(
    [
        StructField("node", StringType()),
        StructField("incarnation", StringType()),
        StructField("partition", IntegerType()),
        StructField("at", TimestampType()),
        StructField("waiting", LongType()),
        StructField("in_flight", LongType()),
        StructField("oldest", TimestampType()),
        StructField("credit", LongType()),
        StructField("subscribers", IntegerType()),
        StructField("journal_first", StringType()),
        StructField("journal_last", StringType()),
        StructField("journal_length", LongType()),
        StructField("journal_max", LongType()),
        StructField("used_memory", LongType()),
        StructField("maxmemory", LongType()),
        StructField("limits", StringType()),
        StructField("retry_delay", StringType()),
        StructField("policies", StringType()),
        StructField("collected", TimestampType()),
    ]
)
"""`oldest` is when the oldest waiting item was published. The memory is that of the Redis process that has the partition.

`limits` and `retry_delay` are as operations read them (broker/model/nodes/options.py); `policies` names what else decides who
is served next. All rows that were read together have the same `collected`.
"""

_META: Final = ("state", "cursor", "kept", "journal_max", "limits", "retry_delay", "ordered", "fair", "by_key")

POLICIES: Final = ("order", "fairness", "bounds of keys", "priorities", "delays")
"""What decides who is served next, besides the order in which items became ready."""

_CREDIT: Final = SCHEMA.fieldNames().index("credit")

IN_FLIGHT: Final = StructType(
    [
        StructField("node", StringType()),
        StructField("incarnation", StringType()),
        StructField("partition", IntegerType()),
        StructField("position", StringType()),
        StructField("attempt", IntegerType()),
        StructField("published", TimestampType()),
        StructField("delivered", TimestampType()),
    ]
)
"""The open deliveries: the journal has no record of them yet."""

WAITING: Final = StructType(
    [field for field in from_arrow_schema(columns.LOG, prefer_timestamp_ntz=False) if field.name != "body"]
)
"""The log entries that wait."""

_FIRST: Final = 0
"""The partition of a queue whose row has what collections give, and the only one of a collection."""

_READER: Final = "stream"
"""The value in place of the quality of service in the line of a subscription that only reads the log."""
_LOOKED_AT: Final = 100
_LISTED: Final = 1_000
_LAST_RANK: Final = 9
"""The rank of the least urgent item in `by_priority`; ten more means that the item is in flight or delayed."""
_ENOUGH_RECORDS: Final = 100
"""With fewer records the fill rate of a journal is unknown."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition: its census row, its open deliveries, and which entries of its log wait.

    Entries after `cursor`, which dispatch has not reached, and those in `back` wait. Those in `away` are in flight.
    """

    row: tuple[Any, ...]
    open: tuple[tuple[Any, ...], ...]
    cursor: Id
    back: frozenset[str]
    away: frozenset[str]
    keeps_s: float | None = None
    """How long the journal keeps a record at its fill rate so far; None: too few records to tell."""


def partition_states(servers: Servers, options: Options) -> dict[JournalPartition, PartitionState]:
    """Read each partition that the options select, once; raises Unreadable."""
    return servers.persist(partial(_partition_states, servers, options))


def _partition_states(servers: Servers, options: Options) -> dict[JournalPartition, PartitionState]:
    found = dict[JournalPartition, PartitionState]()
    for process, listed in list_keys(servers, options, "meta").items():
        with Route(servers, process) as route:
            seconds, micros = route.link.ask("TIME")
            at = datetime.fromtimestamp(int(seconds) + int(micros) / 1e6, UTC)
            memory = dict(
                line.split(":", 1) for line in route.link.ask("INFO", "memory").decode().splitlines() if ":" in line
            )
            room = int(memory["used_memory"]), int(memory.get("maxmemory", 0))
            for key, partition in listed.items():
                state = route.ask(key, partial(_read_state, partition=partition, at=at, room=room))
                if state:
                    found[partition] = state
    above = _read_parents(servers, {partition.node for partition in found})
    return {partition: _add_collections(partition, state, found, above) for partition, state in found.items()}


def _read_parents(servers: Servers, nodes: set[str]) -> dict[str, JournalPartition]:
    """Return the partition of the collection that each node is a child of; most are children of the root."""
    found, left = dict[str, JournalPartition](), nodes

    def read(link: Link, node: str) -> None:
        parent, life = link.ask("HMGET", keys.of_node("node", node), "parent", "parent_life")
        if parent and life:
            found[node] = JournalPartition(parent.decode(), life.decode(), _FIRST)

    for process in servers.processes():
        elsewhere = set[str]()
        with Route(servers, process) as route:
            for node in left:
                try:
                    read(route.link, node)
                except MovedError:
                    elsewhere.add(node)
            left = elsewhere
    for node in left:
        # Its slot moves.
        with Route(servers, process) as route:
            route.ask(keys.of_node("node", node), partial(read, node=node))
    return found


def _add_collections(
    partition: JournalPartition,
    state: PartitionState,
    found: Mapping[JournalPartition, PartitionState],
    above: Mapping[str, JournalPartition],
) -> PartitionState:
    """Add the credit of those that have subscribed to the collections above, once for each queue: it may have all of it."""
    if partition.partition != _FIRST:
        return state
    row, seen = list(state.row), {partition}
    upper = above.get(partition.node)
    # A collection that was deleted has left its children to the root.
    while upper is not None and upper in found and upper not in seen:
        row[_CREDIT] += found[upper].row[_CREDIT]
        seen.add(upper)
        upper = above.get(upper.node)
    return replace(state, row=tuple(row))


def _read_state(link: Link, partition: JournalPartition, at: datetime, room: tuple[int, int]) -> PartitionState | None:
    """Read a partition, or None if it is gone; names the one whose keys no operation has written so."""
    try:
        return _partition_state(link, partition, at, room)
    except (ResponseError, ValueError, LookupError, OverflowError) as error:
        if isinstance(error, ResponseError) and not str(error).startswith("WRONGTYPE"):
            raise
        pattern = f"{keys.of_partition('meta', Partition(*partition)).removesuffix('meta')}*"
        msg = f"the state of {partition} is damaged ({error!s:.100}): inspect its keys ({pattern}), or delete the node"
        raise Unreadable(msg) from error


def census(spark: SparkSession, found: Mapping[JournalPartition, PartitionState]) -> DataFrame:
    """Return the census as rows."""
    collected = datetime.now(UTC)
    return spark.createDataFrame([(*state.row, collected) for state in found.values()], SCHEMA)


def in_flight(spark: SparkSession, found: Mapping[JournalPartition, PartitionState]) -> DataFrame:
    """Return the open deliveries."""
    return spark.createDataFrame([row for state in found.values() for row in state.open], IN_FLIGHT)


def waiting(
    spark: SparkSession, found: Mapping[JournalPartition, PartitionState], options: Mapping[str, str]
) -> DataFrame:
    """Return the log entries that wait, without their bodies."""
    cursors = [(*partition, state.cursor.ms, state.cursor.number) for partition, state in found.items()]
    marks = [
        (*partition, offset, offset not in state.away)
        for partition, state in found.items()
        for offset in state.back | state.away
    ]
    of = "node string, incarnation string, partition int"
    named = ["node", "incarnation", "partition"]
    ahead = F.expr(
        "at is null and (cast(split(offset, '-')[0] as long) > ms or"
        " (cast(split(offset, '-')[0] as long) = ms and cast(split(offset, '-')[1] as long) > number))"
    )
    return (
        spark.read.format("stanzaq")
        .options(**{**options, "stream": "log", "bodies": "false"})
        .load()
        .drop("body")
        .join(F.broadcast(spark.createDataFrame(cursors, f"{of}, ms long, number long")), named)
        .join(spark.createDataFrame(marks, f"{of}, offset string, waits boolean"), [*named, "offset"], "left")
        .where(F.coalesce("waits", ahead))
        .drop("ms", "number", "waits")
    )


def _partition_state(
    link: Link, partition: JournalPartition, at: datetime, room: tuple[int, int]
) -> PartitionState | None:
    of = partial(keys.of_partition, partition=Partition(*partition))
    meta, lines, stored, replaced, successors, dying, locked, locks, urgent, delayed = link.ask_all(
        ("HMGET", of("meta"), *_META),
        ("HVALS", of("subscribers")),
        ("XLEN", of("log")),
        ("HLEN", of("replaced")),
        ("HLEN", of("successors")),
        ("HKEYS", of("outbox_items")),
        ("HKEYS", of("inflight")),
        ("HVALS", of("inflight")),
        ("ZRANGE", of("by_priority"), 0, 0),
        ("ZRANGE", of("delayed"), 0, 0),
    )
    state, cursor, kept, journal_max, *rules = meta
    limits, retry_delay, ordered, fair, by_key = (each.decode() if each else "" for each in rules)
    if state == b"deleted" or cursor is None:
        return None
    first, last, length = link.ask_all(
        ("XRANGE", of("journal"), "-", "+", "COUNT", 1),
        ("XREVRANGE", of("journal"), "+", "-", "COUNT", 1),
        ("XLEN", of("journal")),
    )
    waiting = max(0, stored - replaced - successors - int(kept or 0) - len(locked) - len(dying))
    eligible = _eligible(link, of)
    workers = [line.decode().split(" ", 3) for line in lines]
    workers = [words for words in workers if words[2] != _READER]
    oldest = min([*eligible, *_first_ahead(link, of("log"), cursor)], key=Id.parse, default=None) if waiting else None
    row = (
        *partition,
        at,
        waiting,
        len(locked),
        oldest and _time(Id.parse(oldest).ms),
        sum(int(credit) for credit, *_ in workers),
        len(workers),
        first[0][0].decode() if first else None,
        last[0][0].decode() if last else None,
        length,
        int(journal_max or 0),
        *room,
        limits,
        retry_delay,
        ", ".join(
            name for name, has in zip(POLICIES, (ordered == "1", fair, by_key, urgent, delayed), strict=True) if has
        ),
    )
    away = frozenset(position.decode() for position in (*locked, *dying))
    keeps_s = _predict_kept_seconds(first, last, length, int(journal_max or 0))
    opened = tuple(_open(partition, line) for line in locks)
    back = eligible | _members(link, of("delayed")) | _fields(link, of("group_of")) | _fields(link, of("dependents"))
    return PartitionState(row, opened, Id.parse(cursor), frozenset(back), away, keeps_s)


def _predict_kept_seconds(first: list[Any], last: list[Any], length: int, most: int) -> float | None:
    if length < _ENOUGH_RECORDS:
        return None
    return most / length * (Id.parse(last[0][0]).ms - Id.parse(first[0][0]).ms) / 1000


def _open(partition: JournalPartition, line: bytes) -> tuple[Any, ...]:
    """Parse the line of a lock into a row of IN_FLIGHT (docs/operations.md)."""
    _frontend, _sequence, _token, attempt, _subid, position, since, _rest = line.split(b" ", 7)
    published = Id.parse(position)
    return (*partition, str(published), int(attempt), _time(published.ms), _time(int(since)))


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _first_ahead(link: Link, log: str, cursor: bytes) -> list[str]:
    """Return the position of the first item after the cursor, or one before it if it is not among the next entries."""
    ahead = link.ask("EVAL_RO", WITHOUT_BODIES, 1, log, b"(" + cursor, "+", _LOOKED_AT)
    # An entry with `at` is a later version of an item, whose position is elsewhere.
    found = next((entry for entry in ahead if b"at" not in entry[1][4::2]), None)
    last = ahead[-1] if len(ahead) == _LOOKED_AT else None
    first = found or last
    return [first[0].decode()] if first else []


def _eligible(link: Link, of: Callable[[str], str]) -> set[str]:
    """Return the positions before the cursor of items that could be delivered now."""
    skipped = _members(link, of("skipped"), "[ ", "(!", "BYLEX")
    urgent = _members(link, of("by_priority"), 0, _LAST_RANK, "BYSCORE")
    return _members(link, of("ready")) | {_parse_padded_position(member) for member in skipped | urgent}


def _members(
    link: Link, key: str, first: str | int = "-inf", last: str | int = "+inf", by: str = "BYSCORE"
) -> set[str]:
    """Return the members of a sorted set in a range, read in pages."""
    members: list[str] = []
    while found := link.ask("ZRANGE", key, first, last, by, "LIMIT", len(members), _LISTED):
        members += [member.decode() for member in found]
    return set(members)


def _parse_padded_position(member: str) -> str:
    """Parse the position at the end of a padded text: two numbers of twenty digits."""
    return f"{int(member[-40:-20])}-{int(member[-20:])}"


def _fields(link: Link, key: str) -> set[str]:
    """Return the fields of a hash, positions of items that wait for others: of their group, or their parents."""
    fields: set[str] = set()
    cursor: Any = b"0"
    while True:
        cursor, pairs = link.ask("HSCAN", key, cursor, "COUNT", _LISTED)
        fields.update(position.decode() for position in pairs[::2])
        if cursor == b"0":
            return fields
