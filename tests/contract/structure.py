"""The keys that a partition must have for a state of the model, and how to read those that it has.

Knows the table of keys (`broker/keys.py`) and the model; must not know any script.
"""

from typing import TYPE_CHECKING, Any, Final

from broker.redis_core.operations.operation import subid
from tests.contract.model import PLAIN, Item, Letter, Model, written
from tests.lua.driver import Queue, text

if TYPE_CHECKING:
    import redis

READ: Final = (
    "meta", "log", "index", "replaced", "successors", "ready", "delayed", "inflight", "lock_deadlines", "locks_by_subscriber",
    "subscribers", "ready_subscribers", "idle_subscribers", "history", "outbox", "outbox_attempts", "outbox_items",
    "outbox_records", "outbox_replies", "confirmations", "retries", "progress", "replies", "group_heads", "group_of",
    "group_blocked", "fair_items", "fair_tenants", "journal",
)  # fmt: skip

# One round trip and no write: the state machine reads the keys after every step.
_SNAPSHOT: Final = """
local found = {}
for i, name in ipairs(KEYS) do
  local kind = redis.call('TYPE', name).ok
  if kind == 'hash' then
    found[i] = redis.call('HGETALL', name)
  elseif kind == 'zset' then
    found[i] = redis.call('ZRANGE', name, 0, -1, 'WITHSCORES')
  elseif kind == 'stream' and i == #KEYS then
    found[i] = redis.call('XLEN', name)
  elseif kind == 'stream' then
    local ids = {}
    for j, entry in ipairs(redis.call('XRANGE', name, '-', '+')) do ids[j] = entry[1] end
    found[i] = ids
  else
    found[i] = {}
  end
end
return found
"""


class Snapshots:
    """Reads the keys of partitions on one server."""

    def __init__(self, client: "redis.Redis") -> None:
        """Load the script."""
        self._script = client.register_script(_SNAPSHOT)

    def read(self, queue: Queue) -> dict[str, Any]:
        """Read all keys of a partition: hashes and sorted sets as dicts, the log as its ids, the journal as its length."""
        values = text(self._script(keys=[queue.key(name) for name in READ]))
        found: dict[str, Any] = {}
        for name, value in zip(READ, values, strict=True):
            if name == "log":
                found[name] = set(value)
            elif name == "journal":
                found[name] = value or 0
            else:
                found[name] = dict(zip(value[::2], value[1::2], strict=True))
        return found


def expected(model: Model) -> dict[str, Any]:
    """Return what the keys must hold, exactly; scores and numbers as text."""
    items = list(model.items.values())
    locked = [item for item in items if item.lock]
    unconfirmed = {written(item.position): item.lock for item in locked if item.lock and item.lock.stage != PLAIN}
    free = {one.jid: len(model.held(one.jid)) < one.credit for one in model.subscribers.values()}
    stored = [*items, *(letter.item for letter in model.letters())]
    turns = {subid(one.jid): str(one.served) for one in model.subscribers.values() if free[one.jid]}
    resting = {subid(one.jid): str(one.served) for one in model.subscribers.values() if not free[one.jid]}
    return {
        "log": {written(place) for place in model.places()},
        "kept": (len(model.kept), sum(model.kept.values())),
        "index": {item.name: written(item.position) for item in items if item.indexed},
        "replaced": {
            written(item.position): written(item.version.position)
            for item in stored
            if item.version.position != item.position
        },
        "successors": {written(item.position): written(item.parked.position) for item in items if item.parked},
        "ready": {written(item.position) for item in items if item.state == "ready"},
        "delayed": {written(item.position): str(item.due) for item in items if item.state == "delayed"},
        "inflight": {written(item.position): _line(item) for item in locked},
        "lock_deadlines": {written(item.position): str(item.lock.deadline) for item in locked if item.lock},
        "locks_by_subscriber": {
            f"{item.lock.token:016d} {written(item.position)}": subid(item.lock.jid) for item in locked if item.lock
        },
        "subscribers": {
            subid(one.jid): f"{one.credit} {one.bounces} {one.qos}{one.batch} {one.jid}"
            for one in model.subscribers.values()
        },
        "ready_subscribers": turns,
        "idle_subscribers": resting,
        "history": {
            written(item.position): "\n".join(
                [" ".join([_attempts(item), *(subid(jid) for jid in item.holders)]), *item.history]
            )
            for item in stored
            if item.holders
        },
        "outbox": {name: str(entry.at) for name, entry in model.outbox.items() if name[0] != "r"},
        "outbox_replies": {name: str(entry.at) for name, entry in model.outbox.items() if name[0] == "r"},
        "outbox_attempts": {name: str(entry.attempts) for name, entry in model.outbox.items() if entry.attempts},
        "outbox_items": {written(letter.item.position): _leaving(letter) for letter in model.letters()},
        "outbox_records": {
            name: entry.content for name, entry in model.outbox.items() if isinstance(entry.content, str)
        },
        "replies": {written(item.position): item.reply for item in items if item.reply}
        | {written(item.parked.position): item.parked.reply for item in items if item.parked and item.parked.reply},
        "group_heads": {group: written(item.position) for group, item in model.heads.items()},
        "group_of": {
            written(item.position): item.group
            for item in items
            if item.state == "blocked" or model.heads.get(item.group) is item
        },
        "group_blocked": {
            f"{item.group}\0{item.position[0]:020d}-{item.position[1]:020d}": "0"
            for item in items
            if item.state == "blocked"
        },
        "fair_items": {
            f"{item.tenant}\0005{item.position[0]:020d}{item.position[1]:020d}": "0" for item in items if item.placed
        },
        "fair_tenants": model.turns,
        "confirmations": {
            place: f"{lock.stage} {lock.tries} {lock.message}".rstrip() for place, lock in unconfirmed.items()
        },
        "retries": {place: str(lock.again) for place, lock in unconfirmed.items()},
        "progress": {written(item.position): item.lock.progress for item in locked if item.lock and item.lock.progress}
        | {f"!{written(item.position)}": "" for item in locked if item.lock and item.lock.judged},
        "journal": sum(model.closed.values()),
    }


def compared(found: dict[str, Any]) -> dict[str, Any]:
    """Return what was read in the form of `expected`."""
    seen = dict(found)
    meta = seen.pop("meta")
    assert int(meta["token"]) >= 0
    seen["kept"] = (int(meta.get("kept", 0)), int(meta.get("kept_bytes", 0)))
    seen["ready"] = set(seen["ready"])
    seen["fair_tenants"] = {tenant: float(turn) for tenant, turn in seen["fair_tenants"].items()}
    return seen


def _attempts(item: Item) -> str:
    return f"{item.attempts}-{item.untried}" if item.untried else str(item.attempts)


def _leaving(letter: Letter) -> str:
    lengths = f"{len(letter.jid.encode())} {len(letter.target.encode())}"
    return f"{letter.attempts} {lengths} {letter.jid} {letter.target} {letter.reason}"


def _line(item: Item) -> str:
    lock = item.lock
    assert lock
    since = lock.since
    log_id, size = written(item.version.position), len(item.version.body.encode())
    return (
        f"{lock.frontend} {lock.sequence} {lock.token} {lock.attempt} {subid(lock.jid)} {log_id} {since} {size} "
        f"{len(lock.jid.encode())} {lock.jid} {item.name}"
    )
