"""The bounds of each stream at one instant, for a consistent read. Must not know how entries are read.

One script reads all streams of a Redis process, because in a cluster no transaction may touch two slots. Streams that move to
another process meanwhile are followed there.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from redis.exceptions import MovedError

from broker import store_format
from broker.analytics.faults import Unreadable
from broker.analytics.source.offsets import Id, Offset
from broker.analytics.source.options import Options
from broker.analytics.source.pieces import Piece
from broker.analytics.source.servers import Link, Process, Route, Servers
from broker.journal.schema import PARTITION_KEYS, JournalPartition, partition_of
from broker.keys import prefix, use_prefix

# Only ids: an entry may be as large as a payload. A stream may be gone or moved since the keys were listed.
_BOUNDS: Final = """#!lua flags=no-writes,allow-cross-slot-keys
local found = {}
for i, name in ipairs(ARGV) do
  local info, told = redis.pcall('XINFO', 'STREAM', name), {}
  found[i] = {}
  if not info.err then
    for j = 1, #info, 2 do told[info[j]] = info[j + 1] end
    local first = told['first-entry']
    found[i] = {told['last-generated-id'], told['length'], told['entries-added'], first and first[1] or ''}
  end
end
return found
"""

# Returns the number of entries up to a limit, the id of the last, and how many the stream has dropped.
_REACH: Final = """#!lua flags=no-writes
local found, told = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3]), {}
local info = redis.call('XINFO', 'STREAM', KEYS[1])
for j = 1, #info, 2 do told[info[j]] = info[j + 1] end
return {#found, found[#found] and found[#found][1] or '', told['entries-added'] - told['length']}
"""

_SCANNED: Final = 1_000
_COUNTED: Final = 1_000
"""A script takes about two milliseconds for this many entries."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """One stream at one instant: its first entry (None: empty), the last id it gave, and how many entries it ever had."""

    process: Process
    partition: JournalPartition
    key: str
    first: Id | None
    last: Id
    length: int
    added: int

    @property
    def gone(self) -> int:
        """The number of entries it has dropped: of a journal, the oldest."""
        return self.added - self.length


def snapshot(servers: Servers, options: Options) -> dict[JournalPartition, Bounds]:
    """Take the bounds of all streams that the options select; refuses if a named one is missing."""
    return servers.persist(partial(_snapshot, servers, options))


def _snapshot(servers: Servers, options: Options) -> dict[JournalPartition, Bounds]:
    found: dict[JournalPartition, Bounds] = {}
    for process, keys in list_keys(servers, options, options.stream).items():
        with Route(servers, process) as route:
            told = dict(zip(keys, route.link.ask("EVAL_RO", _BOUNDS, 0, *keys), strict=True))
            for key in keys:
                # Asked for this key alone, a cluster says where it is now; it is nowhere when its node was deleted.
                bounds, at = (told[key], process) if told[key] else (_ask_owner(route, key), route.process)
                # While a slot migrates, two processes may have one stream: the longer one is current.
                if bounds and (keys[key] not in found or found[keys[key]].added < bounds[2]):
                    last, length, added, first = bounds
                    found[keys[key]] = Bounds(
                        at, keys[key], key, Id.parse(first) if first else None, Id.parse(last), length, added
                    )
    missing = set(options.subscribe) - {partition.node for partition in found}
    if missing:
        msg = (
            f"there is no {options.stream} of {', '.join(sorted(missing))}: correct subscribe, or wait until it has one"
        )
        raise Unreadable(msg)
    return found


def list_keys(servers: Servers, options: Options, name: str) -> dict[Process, dict[str, JournalPartition]]:
    """Return the keys of one name of all partitions that the options select, by process; raises Unreadable.

    A key that moves between two scans can be missing in both. So while slots move, all processes are scanned twice, and
    two may name one key.
    """
    use_prefix(options.key_prefix)
    found: defaultdict[Process, dict[str, JournalPartition]] = defaultdict(dict)
    before = servers.slots()
    for _ in range(2):
        for process in servers.processes():
            with servers.link(process) as link:
                listed = _scan(link, name)
            found[process] |= {key: partition for key, partition in listed.items() if options.includes(partition)}
        now = servers.slots()
        if now == before and not any("[" in slots for slots in now):
            break
    return found


def _scan(link: Link, name: str) -> dict[str, JournalPartition]:
    """Return the keys of one name of all partitions in a process; raises Unreadable for keys of another format version."""
    _check_format(link)
    keys: dict[str, JournalPartition] = {}
    cursor: Any = b"0"
    while True:
        cursor, found = link.ask("SCAN", cursor, "MATCH", PARTITION_KEYS % (prefix(), name), "COUNT", _SCANNED)
        for each in found:
            key = each.decode()
            partition = partition_of(key)
            if partition:
                keys[key] = partition
        if cursor == b"0":
            return dict(sorted(keys.items()))


def _ask_owner(route: Route, key: str) -> list[Any]:
    found: list[Any] = route.ask(key, lambda link: link.ask("EVAL_RO", _BOUNDS, 1, key, key)[0])
    return found


def _check_format(link: Link) -> None:
    """Refuse a store of another format; in a cluster only the process with the format's mark can tell."""
    try:
        found = store_format.found(*(link.ask(*line) for line in store_format.question()))
    except MovedError:
        return
    if not found.is_usable:
        raise Unreadable(": ".join(found.refusal()))


def reach(link: Link, piece: Piece, most: int) -> tuple[int, Offset]:
    """Count the entries of a piece, up to `most`; returns how many there are and the offset of the last."""
    total, after, read = 0, piece.after, piece.before
    while total < most:
        asked = min(_COUNTED, most - total)
        count, last, gone = link.ask("EVAL_RO", _REACH, 1, piece.key, f"({after}", str(piece.upto), asked)
        total, after = total + count, Id.parse(last) if count else after
        read = None if read is None else max(read, gone) + count
        if count < asked:
            break
    return total, Offset(after, read)
