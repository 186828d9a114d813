"""The worst cases of `stanzaq bench bounds`: for each operation, every limit at its maximum."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from bench.queue.scene import AT_ONCE, BEFORE, OWNER, Node, Play, Scene, ask_together
from broker import codec, keys
from broker.model import offsets
from broker.model.commands import (
    Bounce,
    Browse,
    Commit,
    Configure,
    InspectItems,
    Locks,
    MoveItems,
    Presence,
    Publish,
    Purge,
    Receive,
    Renew,
    Retract,
    Subscribe,
    Unlock,
)
from broker.model.items.items import Envelope
from broker.model.names import Jid
from broker.model.results import MovedItems
from broker.redis_core.operations.operation import subid

_LARGEST: Final = 262_144
_PAUSE: Final = 0.02


@dataclass(frozen=True, slots=True)
class Case:
    """One worst case: `prepare` sets the scene and returns what is measured."""

    name: str
    prepare: Callable[[Scene], Awaitable[Play]]


async def _leave(scene: Scene) -> Play:
    node = await scene.node()
    jids = await node.subscribe_workers(AT_ONCE, 300)
    await node.publish_items(scene.share_of(AT_ONCE * 300))
    return ask_together(scene, [Presence(jid, available=False) for jid in jids])


async def _gone(scene: Scene) -> Play:
    node = await scene.node()
    await node.subscribe_workers(AT_ONCE, 300)
    made = await node.publish_items(scene.share_of(AT_ONCE * 300))
    first = {row[0]: row for row in reversed(made)}
    return ask_together(
        scene,
        [Bounce(Jid(jid.decode()), node.partition, row[1].decode(), row[3], gone=True) for jid, row in first.items()],
    )


async def _locks(scene: Scene) -> Play:
    node = await scene.node()
    jids = await node.subscribe_workers(scene.share_of(AT_ONCE), 1000)
    await node.publish_items(len(jids) * 1000)
    return ask_together(
        scene, [Locks(node.name, jids[number % len(jids)]) for number in range(max(20, scene.share_of(AT_ONCE)))]
    )


async def _receive(scene: Scene) -> Play:
    node = await scene.node()
    jids = await node.subscribe_workers(scene.share_of(AT_ONCE), 1000, pulled=True)
    await node.publish_items(len(jids) * 1000)
    return ask_together(scene, [Receive(node.name, jid, jid, 60_000) for jid in jids])


def _publish(size: int) -> Callable[[Scene], Awaitable[Play]]:
    async def prepare(scene: Scene) -> Play:
        node = await scene.node(ordered="true", max_items="200", node_full="retract-oldest")
        await node.publish_items(200, size, key="k")
        body = b"x" * size
        return ask_together(
            scene, [Publish(node.name, OWNER, None, body, size, key="k") for _ in range(scene.share_of(AT_ONCE))]
        )

    return prepare


async def _republish(scene: Scene) -> Play:
    """Republish by id items that have large payloads."""
    node = await scene.node(max_items="1000")
    big = [
        Publish(node.name, OWNER, f"i{number}", b"x" * _LARGEST, _LARGEST) for number in range(scene.share_of(AT_ONCE))
    ]
    for command in big:
        await scene.ask(command)
    small = [Publish(node.name, OWNER, command.item_id, b"x", 1) for command in big]
    return ask_together(scene, small)


async def _delete(scene: Scene) -> Play:
    """Delete returned items as an owner who may have several subscriptions."""
    node = await scene.node()
    jids = await node.subscribe_workers(1, 150)
    await node.publish_items(150)
    await scene.ask(Presence(jids[0], available=False))
    await _allow_several(scene, node)
    found: list[Any] = await scene.client.xrange(keys.of_partition("log", node.partition)) or []
    return ask_together(scene, [Retract(node.name, OWNER, f"0-{entry.decode()}") for entry, _fields in found])


async def _allow_several(scene: Scene, node: Node) -> None:
    """Let each JID have several subscriptions to a node."""
    await scene.client.hset(keys.of_partition("meta", node.partition), "multi", "1")


async def _renew(scene: Scene) -> Play:
    """Renew locks of workers who may have several subscriptions."""
    node = await scene.node()
    await node.subscribe_workers(1, AT_ONCE)
    made = await node.publish_items(AT_ONCE)
    await _allow_several(scene, node)
    return ask_together(scene, [Renew(node.name, Jid(row[0].decode()), row[2].decode(), row[3]) for row in made])


async def _renew_refused(scene: Scene) -> Play:
    """Renew locks of large items that others hold: the sender may be their publisher."""
    node = await scene.node()
    await node.subscribe_workers(1, AT_ONCE)
    made = await node.publish_items(scene.share_of(AT_ONCE), _LARGEST)
    return ask_together(scene, [Renew(node.name, Jid("other@bounds.example/1"), row[2].decode()) for row in made])


async def _resent(scene: Scene) -> Play:
    """Wait until the deliveries of a dead frontend are taken over."""
    frontends = keys.of_service("frontends")
    await scene.client.zadd(frontends, {BEFORE: 1})

    async def done() -> bool:
        return await scene.client.zscore(frontends, BEFORE) is None

    return _wait_until(done)


async def _resend(scene: Scene) -> Play:
    """Take over large items from a dead frontend."""
    node = await scene.node()
    await node.subscribe_workers(1, 1000)
    await node.publish_items(scene.share_of(500), _LARGEST)
    return await _resent(scene)


async def _resend_small(scene: Scene) -> Play:
    node = await scene.node()
    await node.subscribe_workers(20, 1000)
    await node.publish_items(scene.share_of(20_000))
    return await _resent(scene)


async def _readers(scene: Scene, owes: str) -> tuple[Node, list[Jid], str]:
    """Create a log with many readers, each with the maximum of uncommitted entries.

    Their credit is lower by now, so that not all entries are delivered again.
    """
    node = await scene.node(queueing="false", retention_items="100000")
    await node.publish_items(1000)
    log: list[Any] = await scene.client.xrange(keys.of_partition("log", node.partition)) or []
    positions = [entry.decode() for entry, _fields in log]
    places = ["".join(part.zfill(20) for part in position.split("-")) for position in positions]
    jids = [Jid(f"r{number}@bounds.example/1") for number in range(max(100, scene.share_of(AT_ONCE)))]
    commands = (Subscribe(node.name, jid, jid, 1, start="@latest", partitions=(0,)) for jid in jids)
    await asyncio.gather(*map(scene.ask, commands))
    for jid in jids:
        name = subid(jid)
        await scene.client.zadd(
            keys.of_partition("uncommitted", node.partition), {f"{name} {place}": 0 for place in places}
        )
        await scene.client.hset(keys.of_partition("readers", node.partition), name, f"{positions[-1]} 0-0 {owes}:1")
    await scene.client.hset(keys.of_partition("meta", node.partition), "token", "1")
    await scene.client.delete(keys.of_partition("readers_ready", node.partition))
    return node, jids, offsets.write_offset(node.partition, positions[-1])


async def _resend_readers(scene: Scene) -> Play:
    await _readers(scene, BEFORE)
    return await _resent(scene)


async def _commit(scene: Scene) -> Play:
    """Commit the maximum of entries for many readers."""
    node, jids, last = await _readers(scene, scene.core.frontend)
    return ask_together(scene, [Commit(node.name, jid, 0, last) for jid in jids])


async def _leave_readers(scene: Scene) -> Play:
    """End subscriptions of readers with the maximum of uncommitted entries."""
    _node, jids, _last = await _readers(scene, scene.core.frontend)
    return ask_together(scene, [Presence(jid, available=False) for jid in jids])


def _read(entries: int, size: int) -> Callable[[Scene], Awaitable[Play]]:
    async def prepare(scene: Scene) -> Play:
        """Start many readers at once, each at another position."""
        node = await scene.node(queueing="false", retention_items="100000")
        await node.publish_items(scene.share_of(entries), size)
        log: list[Any] = await scene.client.xrange(keys.of_partition("log", node.partition)) or []
        starts = [offsets.write_offset(node.partition, entry.decode()) for entry, _fields in log]
        jids = [Jid(f"r{number}@bounds.example/1") for number in range(AT_ONCE)]
        return ask_together(
            scene,
            [Subscribe(node.name, jid, jid, 20, start=starts[number % len(starts)]) for number, jid in enumerate(jids)],
        )

    return prepare


def _due(size: int, count: int, hints: str) -> Callable[[Scene], Awaitable[Play]]:
    """Have many items whose delay, or TTL, ends at the same moment."""

    async def prepare(scene: Scene) -> Play:
        node = await scene.node(max_items="100000")
        names = [keys.of_partition(name, node.partition) for name in ("delayed", "expirations")]
        await node.publish_items(scene.share_of(count), size, hints=hints)
        # Their time is hours away when they are published; set it to now.
        for name in names:
            members: Any = await scene.client.zrange(name, 0, -1)
            if members:
                await scene.client.zadd(name, dict.fromkeys(members, 1))

        async def done() -> bool:
            return not any([await scene.client.zcard(name) for name in names])

        await scene.client.zadd(keys.of_service("due"), {str(node.partition): 1})
        return _wait_until(done)

    return prepare


def _wait_until(done: Callable[[], Awaitable[bool]]) -> Play:
    async def play() -> None:
        for _look in range(1_000):
            if await done():
                return
            await asyncio.sleep(_PAUSE)
        msg = "not done in time"
        raise RuntimeError(msg)

    return play


async def _unlock(scene: Scene) -> Play:
    """All items are at their last attempt, so each becomes a dead letter with a large payload."""
    node = await scene.node(max_deliveries="1", dead_letter_node="dead")
    await scene.node("dead", max_items="10000")
    await node.subscribe_workers(1, AT_ONCE)
    made = await node.publish_items(scene.share_of(AT_ONCE), _LARGEST)
    return ask_together(scene, [Unlock(node.name, Jid(row[0].decode()), row[2].decode(), row[3]) for row in made])


async def _expire(scene: Scene) -> Play:
    node = await scene.node(max_deliveries="1", dead_letter_node="dead", lock_seconds="1")
    await scene.node("dead", max_items="10000")
    await node.subscribe_workers(1, AT_ONCE)
    made = await node.publish_items(scene.share_of(AT_ONCE), _LARGEST)
    # Work on all of them has begun, so each becomes a dead letter.
    begun = (Renew(node.name, Jid(row[0].decode()), row[2].decode(), row[3], begun=True) for row in made)
    await asyncio.gather(*map(scene.ask, begun))

    inflight = keys.of_partition("inflight", node.partition)

    async def done() -> bool:
        return not await scene.client.hlen(inflight)

    return _wait_until(done)


async def _browse(scene: Scene) -> Play:
    """Browse a page while the most entries that a browse may skip are elsewhere."""
    node = await scene.node(retention_items="10000", max_items="100000")
    await node.subscribe_workers(20, 250)
    await node.publish_items(scene.share_of(5_000))
    await node.publish_items(scene.share_of(5_000), hints="3600000 4 0")
    for jid in await node.subscribe_workers(1, 1000):
        await scene.ask(Presence(jid, available=False))
    meta = keys.of_partition("meta", node.partition)
    tail: Any = await scene.client.hget(meta, "tail")
    await scene.client.hset(meta, mapping={"kept": 1, "cursor": tail})
    return ask_together(scene, [Browse(node.name, OWNER, (), limit=50)])


async def _browse_large(scene: Scene) -> Play:
    node = await scene.node(max_items="100000")
    await node.publish_items(scene.share_of(200), _LARGEST)
    return ask_together(scene, [Browse(node.name, OWNER, (), limit=100)])


async def _purge(scene: Scene) -> Play:
    node = await scene.node(max_items="100000")
    await node.publish_items(scene.share_of(300), _LARGEST)
    return ask_together(scene, [Purge(node.name, OWNER)])


async def _purge_log(scene: Scene) -> Play:
    node = await scene.node(queueing="false", retention_items="100000")
    await node.publish_items(scene.share_of(300), _LARGEST)
    return ask_together(scene, [Purge(node.name, OWNER)])


async def _retention(scene: Scene) -> Play:
    """Reconfigure a log so that it keeps little."""
    node = await scene.node(queueing="false", retention_items="100000")
    await node.publish_items(scene.share_of(300), _LARGEST)
    return ask_together(
        scene,
        [
            Configure(node.name, OWNER, {"stanzaq#retention_items": ("1",)}),
            Publish(node.name, OWNER, None, b"x", 1),
        ],
    )


async def _hand_out(scene: Scene) -> Play:
    node = await scene.node(max_items="100000")
    await node.publish_items(scene.share_of(200), _LARGEST)
    jid = Jid("late@bounds.example/1")
    return ask_together(scene, [Subscribe(node.name, jid, jid, 1000)])


async def _transfer(scene: Scene) -> Play:
    node = await scene.node(max_items="100000")
    await scene.node("there", max_items="100000")
    await node.publish_items(scene.share_of(200), _LARGEST)

    async def play() -> None:
        scan: str = ""
        while True:
            found = await scene.ask(MoveItems(node.name, OWNER, "there", (), "", 200, scan))
            assert isinstance(found, MovedItems)
            scan = found.scan
            if not scan:
                return

    return play


async def _survey(scene: Scene) -> Play:
    node = await scene.node(max_items="100000")
    await node.publish_items(scene.share_of(200), _LARGEST)
    return ask_together(scene, [InspectItems(node.name, OWNER, (), 200, "")])


async def _selectors(scene: Scene) -> Play:
    """Let many workers with more than equality selectors examine items that none of them selects."""
    node = await scene.node(max_items="100000")
    jids = [Jid(f"w{number}@bounds.example/1") for number in range(100)]
    for number, jid in enumerate(jids):
        await scene.ask(Subscribe(node.name, jid, jid, 3, selector=f"color LIKE 'c{number}' AND size > {number}"))
    body = codec.pack(Envelope(b"x", "text/plain", headers={"color": "none", "size": "5"}))
    return ask_together(
        scene, [Publish(node.name, OWNER, None, body, len(body)) for _ in range(scene.share_of(2 * AT_ONCE))]
    )


CASES: Final = tuple(
    Case(name, prepare)
    for name, prepare in {
        "leave": _leave,
        "gone": _gone,
        "locks": _locks,
        "receive": _receive,
        "publish_64k": _publish(65_536),
        "publish_256k": _publish(_LARGEST),
        "republish": _republish,
        "delete": _delete,
        "unlock": _unlock,
        "expire": _expire,
        "browse": _browse,
        "browse_large": _browse_large,
        "purge": _purge,
        "purge_log": _purge_log,
        "retention": _retention,
        "hand_out": _hand_out,
        "transfer": _transfer,
        "survey": _survey,
        "selectors": _selectors,
        "renew": _renew,
        "renew_refused": _renew_refused,
        "resend": _resend,
        "resend_small": _resend_small,
        "resend_readers": _resend_readers,
        "commit": _commit,
        "leave_readers": _leave_readers,
        "read_large": _read(200, _LARGEST),
        "read_small": _read(20_000, 10),
        "promote": _due(10, 20_000, "36000000 3 0"),
        "promote_large": _due(_LARGEST, 300, "36000000 3 0"),
        "sweep": _due(10, 20_000, "0 3 36000000"),
        "sweep_large": _due(_LARGEST, 300, "0 3 36000000"),
    }.items()
)
