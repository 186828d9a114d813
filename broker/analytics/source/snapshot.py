"""How far each stream reaches at one instant: the bounds of a consistent read. Must not know how entries are read.

All streams of a Redis process are asked in one script, because in a cluster no transaction may touch two slots.
"""

from dataclasses import dataclass
from typing import Any, Final

from broker.analytics.faults import Unreadable
from broker.analytics.source.offsets import Id
from broker.analytics.source.options import Options
from broker.analytics.source.servers import Link, Process, Servers
from broker.journal.schema import STREAM_KEYS, Place, place_of

# Ids alone: an entry may be as large as a payload. A stream may have gone since the keys were listed.
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

# Up to which entry so many of them reach, and how many they are.
_REACH: Final = """#!lua flags=no-writes
local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])
return {#found, found[#found] and found[#found][1] or ''}
"""

_SCANNED: Final = 1_000
_COUNTED: Final = 1_000
"""So many entries take a script about two milliseconds."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """One stream as it stood: its first entry (None: it is empty), the last id it gave, and how many entries it ever had."""

    process: Process
    place: Place
    key: str
    first: Id | None
    last: Id
    length: int
    added: int

    @property
    def gone(self) -> int:
        """How many entries it has no more: of a journal, the oldest."""
        return self.added - self.length


def snapshot(servers: Servers, options: Options) -> dict[Place, Bounds]:
    """Take the bounds of all streams that the options ask for; refuses one that is asked for by name and missing."""
    found: dict[Place, Bounds] = {}
    for process in servers.processes():
        with servers.link(process) as link:
            keys = {key: place for key, place in _keys(link, options.stream).items() if options.wants(place)}
            for (key, place), bounds in zip(keys.items(), link.ask("EVAL", _BOUNDS, 0, *keys), strict=True):
                if bounds:
                    last, length, added, first = bounds
                    at = Bounds(process, place, key, Id.parse(first) if first else None, Id.parse(last), length, added)
                    # While a slot moves, two processes may know of one stream: who has more of it has it now.
                    if place not in found or found[place].added < added:
                        found[place] = at
    missing = set(options.subscribe) - {place.node for place in found}
    if missing:
        msg = (
            f"there is no {options.stream} of {', '.join(sorted(missing))}: correct subscribe, or wait until it has one"
        )
        raise Unreadable(msg)
    return found


def _keys(link: Link, stream: str) -> dict[str, Place]:
    keys: dict[str, Place] = {}
    cursor: Any = b"0"
    while True:
        cursor, names = link.ask("SCAN", cursor, "MATCH", STREAM_KEYS % stream, "COUNT", _SCANNED, "TYPE", "stream")
        for name in names:
            key = name.decode()
            place = place_of(key)
            if place:
                keys[key] = place
        if cursor == b"0":
            return dict(sorted(keys.items()))


def reach(link: Link, bounds: Bounds, after: Id, upto: Id, most: int) -> tuple[int, Id]:
    """Give how many entries there are between two ids, up to `most`, and the last of them."""
    total, last = 0, after
    while total < most:
        asked = min(_COUNTED, most - total)
        count, at = link.ask("EVAL", _REACH, 1, bounds.key, f"({last}", str(upto), asked)
        if count:
            total, last = total + count, Id.parse(at)
        if count < asked:
            break
    return total, last
