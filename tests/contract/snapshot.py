"""A snapshot of a node of several partitions, from its keys and a browse. Knows keys and lines; must not know what is right."""

from dataclasses import dataclass

from broker import keys
from broker.model.commands import Browse
from broker.model.names import Jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.results import Browsed
from broker.redis_core.core import RedisCore
from broker.redis_core.records.group_members import Member

OWNER = Jid("alice@x/home")
"""The JID that creates the node, publishes, and deletes."""


@dataclass(frozen=True, slots=True)
class Held:
    """A lock: its holder, item, token and deadline."""

    jid: Jid
    item: str
    token: int
    deadline: int


@dataclass(frozen=True, slots=True)
class Tenure:
    """The owner of a partition."""

    jid: Jid
    group: str
    lease: int


@dataclass(frozen=True, slots=True)
class Seen:
    """One partition; `epochs` are those of groups, and until when each is kept; `items` have state and payload."""

    fence: int
    tenure: Tenure | None
    epochs: dict[str, tuple[int, int]]
    limits: dict[Jid, int]
    locks: dict[str, Held]
    items: dict[str, tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All partitions, and the members of groups."""

    parts: tuple[Seen, ...]
    members: dict[Jid, Member]


async def look(core: RedisCore, node: str) -> Snapshot:
    """Read all of a node; nothing may be under way."""
    record = await core._store.read(node)
    assert record is not None
    routes = core.router(node)
    await routes.cache.renew()
    parts = [await _part(core, record, number) for number in range(record.config.partitions)]
    members = await core.owners._members.members(node)
    return Snapshot(tuple(parts), {member.jid: member for member in members.values()})


async def _part(core: RedisCore, record: NodeRecord, number: int) -> Seen:
    partition = record.partition(number)
    meta, owners, subscribers, inflight, deadlines = await core._server.commands(
        [
            ("HMGET", keys.of_partition("meta", partition), "fence", "owner"),
            ("HGETALL", keys.of_partition("group_epochs", partition)),
            ("HGETALL", keys.of_partition("subscribers", partition)),
            ("HGETALL", keys.of_partition("inflight", partition)),
            ("ZRANGE", keys.of_partition("lock_deadlines", partition), 0, -1, "WITHSCORES"),
        ]
    )
    browsed = await core.router(record.name).ask(number, Browse(record.name, OWNER, (), 1_000))
    assert isinstance(browsed, Browsed) and not browsed.more, browsed
    names, limits = {}, {}
    for name, line in _texts(subscribers).items():
        limit, _bounces, _qos, jid = line.split(" ", 3)
        names[name], limits[Jid(jid)] = Jid(jid), int(limit)
    until = {place.decode(): int(float(score)) for place, score in deadlines}
    locks = {}
    for place, line in _texts(inflight).items():
        words = line.split(" ")
        locks[place] = Held(Jid(words[-2]), words[-1], int(words[2]), until[place])
    tenure = None
    if meta[1]:
        name, lease, clearing, group = meta[1].decode().split(" ")
        assert clearing == "0"
        tenure = Tenure(names[name], group, int(lease))
    epochs = {group: (int(line.split(" ")[0]), int(line.split(" ")[1])) for group, line in _texts(owners).items()}
    items = {item.item_id: (item.state, item.envelope) for item in browsed.items}
    return Seen(int(meta[0] or 0), tenure, epochs, limits, locks, items)


def _texts(found: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in found.items()}
