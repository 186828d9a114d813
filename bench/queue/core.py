"""`stanzaq bench core`: the queue core on a Redis of its own, next to plain Redis commands on the same server.

200-byte payloads, all features on. README and CI name the rows and their targets.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import redis.asyncio as aioredis
import uvloop
from pydantic import SecretStr
from rich.console import Console

from bench.report import Row, row_at_least, row_at_most, show
from broker import keys
from broker.model.commands import Command, Declare, Publish, Retract, Subscribe
from broker.model.items.durability import Durability
from broker.model.items.items import Delivery, Notice
from broker.model.names import Jid, Partition
from broker.model.nodes.options import AccessModel
from broker.model.results import Refused
from broker.redis_core.core import RedisCore
from broker.redis_core.operations.operation import delivery_rows, subid, subids
from broker.redis_core.redis_client.client import Answer, Server
from broker.scripts.location import lua_directory
from broker.settings import NodeCreation, Packaging, Settings
from frontends.tools.servers.redis import RedisServer

BODY: Final = b"x" * 200
BATCH: Final = 100
WORKERS: Final = tuple(f"worker{number}@localhost/bench" for number in range(4))
BASE: Final = {
    "now": "",
    "revision": "1",
    "frontend": "bench",
    "number": 0,
    "retry": "5000 20000 3",
}
CALLS: Final = tuple(f"cmdstat_{name}" for name in ("fcall", "fcall_ro", "evalsha", "evalsha_ro"))
"""How `INFO commandstats` names the calls of operations."""

_ALTERNATIONS: Final = 25
"""How often each side of a comparison is measured, alternating; the best counts."""

INTAKE: Final = {
    "dedupe": "overwrite",
    "dedupe_ms": 1,
    "once_ms": 1,
    "max_items": 10_000_000,
    "node_full": "reject",
    "publish_rate": "",
}


class Bench:
    """One partition, used by its Lua operations alone."""

    def __init__(self, server: Server, node: str, number: int = 0) -> None:
        """Use a partition of its own."""
        self.server = server
        self.partition = Partition(node, "bench", number)
        self.requests = 0
        self._wide = False

    async def run(self, name: str, fixed: dict[str, Any], rows: list[dict[str, Any]] | None = None) -> Answer:
        """Run one operation on the partition."""
        header = self.server.operations[name]
        needed = header.keys if self._wide else header.plain
        names = [keys.of_partition(key, self.partition) for key in needed]
        reply = await self.server.run(self.server.write_call(name, names, fixed, rows or []))
        if reply.code == b"wide":
            self._wide = True
            return await self.run(name, fixed, rows)
        if reply.code != b"ok":
            msg = f"{name} answered {reply.code!r}"
            raise RuntimeError(msg)
        return reply

    async def open(self, journal_max: int = 10_000, fair: str = "") -> None:
        """Create the partition, perhaps of a node with a fair order."""
        fixed = {"revision": 1, "lock_ms": 600_000, "max_deliveries": 20, "journal_max": journal_max}
        await self.run("open_partition", fixed, [{"kind": "option", "name": "fair", "value": fair}])

    async def publish(self, items: Sequence[str], groups: Sequence[str] | None = None) -> Answer:
        """Publish a batch, perhaps with a group key for each item; an empty id lets the server choose one."""
        row = {"by": "bench@localhost", "body": BODY, "once": "", "hints": "", "refused": ""}
        pairs = zip(items, groups or [""] * len(items), strict=True)
        return await self.run("publish", {**BASE, **INTAKE}, [{"item": item, "key": key, **row} for item, key in pairs])

    async def fill(self, count: int) -> None:
        """Publish this many items."""
        for _ in range(count // BATCH):
            await self.publish([""] * BATCH)

    async def subscribe(self, workers: tuple[str, ...], credit: int) -> list[Any]:
        """Subscribe workers; returns their first deliveries."""
        nothing = dict.fromkeys(("batch", "must", "lease", "scope", "named", "several", "selector"), "")
        row = {"credit": credit, "qos": "unacknowledged"} | nothing
        rows = [{"subid": subid(jid), "jid": jid, **row} for jid in workers]
        reply = await self.run("subscribe", {**BASE, "max_subscribers": 1_000_000}, rows)
        return delivery_rows(reply.deliveries)

    async def visit(self) -> None:
        """Sweep the partition."""
        await self.run("sweep", BASE)

    async def acknowledge(self, held: list[Any]) -> list[Any]:
        """Acknowledge deliveries; returns those that follow."""
        rows = []
        for jid, _position, item, token, *_rest in held:
            self.requests += 1
            request = f"r{self.requests}"
            who = {"sender": jid, "subids": subids(jid.decode()), "owner": ""}
            rows.append({**who, "item": item, "token": token, "request": request, "next": ""})
        return delivery_rows((await self.run("retract", {**BASE, "together": ""}, rows)).deliveries)


async def rate(count: int, step: Callable[[], Awaitable[int]]) -> float:
    """Repeat a step until `count` items are done; returns items a second."""
    done, began = 0, time.perf_counter()
    while done < count:
        done += await step()
    return done / (time.perf_counter() - began)


async def publish_batch(server: Server, client: "aioredis.Redis", count: int) -> Row:
    """Compare batched publishing to pipelined XADD, alternating, so that noise hits both."""
    bench = Bench(server, "publish")
    await bench.open()

    async def ours() -> int:
        await bench.publish([""] * BATCH)
        return BATCH

    async def native() -> int:
        pipeline = client.pipeline(transaction=False)
        for _ in range(BATCH):
            pipeline.xadd("native", {"body": BODY})
        await pipeline.execute()
        return BATCH

    return row_at_least("publish_batch", "items/s", *(await alternating(count, ours, native)), 0.8)


async def alternating(
    count: int, ours: Callable[[], Awaitable[int]], native: Callable[[], Awaitable[int]], rounds: int = 4
) -> tuple[float, float]:
    """Measure two rates, alternating, and return the better repetition of each: what the machine can do undisturbed."""
    best = [0.0, 0.0]
    for _ in range(rounds):
        for side, step in enumerate((ours, native)):
            best[side] = max(best[side], await rate(count // rounds, step))
    return best[0], best[1]


async def acknowledge_batch(server: Server, client: "aioredis.Redis", count: int) -> Row:
    """Compare acknowledge + next delivery to XREADGROUP + XACK."""
    bench = Bench(server, "acknowledge")
    await bench.open()
    await bench.fill(count + BATCH)
    held = await bench.subscribe(WORKERS, BATCH // len(WORKERS))
    for _ in range(0, count + BATCH, BATCH):
        pipeline = client.pipeline(transaction=False)
        for _ in range(BATCH):
            pipeline.xadd("group", {"body": BODY})
        await pipeline.execute()
    await client.xgroup_create("group", "workers", "0")

    async def ours() -> int:
        nonlocal held
        done = len(held)
        held = await bench.acknowledge(held)
        return done

    async def native() -> int:
        read: Any = await client.xreadgroup("workers", "one", {"group": ">"}, count=BATCH)
        entries: list[Any] = read[0][1]
        ids = [entry[0] for entry in entries]
        await client.xack("group", "workers", *ids)
        return len(ids)

    return row_at_least("acknowledge_batch", "items/s", *(await alternating(count, ours, native)), 0.3)


class Sink:
    """An outlet that queues deliveries."""

    def __init__(self) -> None:
        """Start empty."""
        self.deliveries: asyncio.Queue[Delivery] = asyncio.Queue()

    def deliver(self, batch: Sequence[Delivery]) -> None:
        """Queue deliveries."""
        for delivery in batch:
            self.deliveries.put_nowait(delivery)

    def notify(self, notice: Notice) -> None:
        """Ignore notices."""

    def congested(self) -> bool:
        """Return False: nothing waits here."""
        return False

    def flushed(self) -> bool:
        """Return True: everything is written at once."""
        return True


def settings(url: str) -> Settings:
    """Return settings for a core without a door, whose owners and workers are of any domain."""
    return Settings(
        redis_url=url,
        redis_timeout=30.0,
        xmpp_domain="queue.localhost",
        xmpp_secret=SecretStr("none"),
        node_creation=NodeCreation.ANYONE,
        partition_quota=1_000_000,
        default_access_model=AccessModel.OPEN,
    )


async def ask(core: RedisCore, command: Command) -> Any:  # noqa: ANN401  (typed by the command)
    """Execute a command that must not be refused."""
    result = await core.ask(command)
    if isinstance(result, Refused):
        msg = f"{type(command).__name__} was refused: {result.detail}"
        raise RuntimeError(msg)  # noqa: TRY004  (the type is right, the result is not)
    return result


async def micro_batch(server: Server, url: str, count: int) -> Row:
    """Compare 64 concurrent callers through the pipeline to one function call for each."""
    callers = 64
    single = Bench(server, "single")
    await single.open()
    await single.fill(count + BATCH)
    held = await single.subscribe(WORKERS, callers // len(WORKERS))

    async def one_by_one() -> int:
        held.extend(await single.acknowledge([held.pop(0)]))
        return 1

    alone = await rate(max(count // 5, 200), one_by_one)

    sink = Sink()
    core = RedisCore(settings(url), sink)
    await core.start()
    owner = Jid("bench@localhost/1")
    await core.ask(Declare("gathered", owner, {}))
    for _ in range(0, count + callers, BATCH):
        await asyncio.gather(*(core.ask(Publish("gathered", owner, None, BODY, len(BODY))) for _ in range(BATCH)))
    for worker in WORKERS:
        await core.ask(Subscribe("gathered", Jid(worker), Jid(worker), callers // len(WORKERS)))

    async def caller() -> None:
        for _ in range(count // callers):
            item = await sink.deliveries.get()
            await core.ask(Retract("gathered", item.subscriber, item.item_id, item.token, str(item.token)))

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    gathered = (count // callers) * callers / (time.perf_counter() - began)
    await core.drain(5)
    await core.stop()
    return row_at_least("micro_batch", "items/s", gathered, alone, 5)


async def publish_cpu(client: "aioredis.Redis", url: str, count: int) -> Row:
    """Compare this process's CPU time of a single publish through the core to that of an XADD by redis-py."""
    core = RedisCore(settings(url), Sink())
    owner = Jid("bench@localhost/1")
    await core.ask(Declare("alone", owner, {}))
    publish = Publish("alone", owner, None, BODY, len(BODY))

    async def ours() -> None:
        await core.ask(publish)

    async def native() -> None:
        await client.xadd("plain", {"body": BODY})

    best = [float("inf")] * 2
    for _ in range(_ALTERNATIONS):
        for side, step in enumerate((ours, native)):
            began = time.process_time()
            for _ in range(count):
                await step()
            best[side] = min(best[side], (time.process_time() - began) / count * 1e6)
    await core.stop()
    return row_at_most("publish_cpu", "µs", best[0], 1.96, best[1])


async def publish_replicated(count: int) -> Row:
    """Compare batches of publishes that wait for a replica to batches that wait for none, on the same Redis."""
    with RedisServer(port=0) as master, RedisServer(port=0, options={"replicaof": f"127.0.0.1 {master.port}"}):
        core = RedisCore(settings(master.url), Sink())
        await core.start()
        owner = Jid("bench@localhost/1")
        for level in Durability:
            if level is not Durability.SYNCED:
                await core.ask(Declare(level.value, owner, {"stanzaq#confirm": (level.value,)}))
        first = Publish(Durability.REPLICATED.value, owner, None, BODY, len(BODY))
        # The replica needs a moment to begin.
        while isinstance(await core.ask(first), Refused):  # noqa: ASYNC110  (polling is the only way)
            await asyncio.sleep(0.1)

        async def batch(level: Durability) -> int:
            command = Publish(level.value, owner, None, BODY, len(BODY))
            answers = await asyncio.gather(*(core.ask(command) for _ in range(BATCH)))
            if any(isinstance(each, Refused) for each in answers):
                msg = "a publish was not confirmed"
                raise RuntimeError(msg)
            return BATCH

        ours, native = await alternating(
            count, partial(batch, Durability.REPLICATED), partial(batch, Durability.STORED), rounds=_ALTERNATIONS
        )
        await core.stop()
        return row_at_most("publish_replicated", "µs", 1e6 / ours, 1.5, 1e6 / native)


async def memory(  # noqa: PLR0913, PLR0917  (what to measure, and how)
    server: Server, client: "aioredis.Redis", name: str, count: int, item: Callable[[int], str], most: int
) -> Row:
    """Measure the memory of a waiting item, as the server reports it."""
    bench = Bench(server, name)
    await bench.open()
    before = (await client.info("memory"))["used_memory"]
    for first in range(0, count, BATCH):
        await bench.publish([item(first + number) for number in range(BATCH)])
    return row_at_most(name, "B/item", ((await client.info("memory"))["used_memory"] - before) / count, most)


async def cost(client: "aioredis.Redis", bench: Bench, rounds: int) -> float:
    """Return the server's own time, in µs, for acknowledging ten items, their successors, and publishing ten; no client time."""
    held = await bench.subscribe(WORKERS, 10)
    for _ in range(5):
        held = await bench.acknowledge(held[:10]) + held[10:]
        await bench.publish([""] * 10)
    best = float("inf")
    for _ in range(5):
        await client.config_resetstat()
        for _ in range(rounds):
            held = held[10:] + await bench.acknowledge(held[:10])
            await bench.publish([""] * 10)
        best = min(best, micros(await client.info("commandstats")) / rounds)
    return best


async def calls(client: "aioredis.Redis", url: str, rounds: int) -> list[Row]:
    """Compare the server's own time of a function call to that of the same code as a script."""
    best: dict[Packaging, list[float]] = {}
    servers = {
        each: Server.connect(url, lua_directory(), 60, each) for each in (Packaging.FUNCTIONS, Packaging.SCRIPTS)
    }
    steps = {}
    for packaging, server in servers.items():
        publishing, working, idle = (
            Bench(server, f"{packaging}-{name}") for name in ("publish", "acknowledge", "visit")
        )
        for bench in (publishing, working, idle):
            await bench.open()
        await working.fill(_ALTERNATIONS * rounds + BATCH)
        held = await working.subscribe(WORKERS, 1)
        steps[packaging] = _single_calls(publishing, working, idle, held)
    for _ in range(_ALTERNATIONS):
        for packaging, those in steps.items():
            found = [await _server_us(client, step, rounds) for step in those]
            best[packaging] = [min(pair) for pair in zip(found, best.get(packaging, found), strict=True)]
    for server in servers.values():
        await server.close()
    pairs = zip(best[Packaging.FUNCTIONS], best[Packaging.SCRIPTS], strict=True)
    wanted = (("call_publish", 0.45), ("call_acknowledge", 0.6), ("call_visit", 0.3))
    return [
        row_at_most(name, "µs", function, target, script)
        for (name, target), (function, script) in zip(wanted, pairs, strict=True)
    ]


def _single_calls(
    publishing: Bench, working: Bench, idle: Bench, held: list[Any]
) -> tuple[Callable[[], Awaitable[None]], ...]:
    async def publish() -> None:
        await publishing.publish([""])

    async def acknowledge() -> None:
        held.extend(await working.acknowledge([held.pop(0)]))

    return publish, acknowledge, idle.visit


async def _server_us(client: "aioredis.Redis", step: Callable[[], Awaitable[None]], rounds: int) -> float:
    """Return the server's own time of one call, in µs."""
    await client.config_resetstat()
    for _ in range(rounds):
        await step()
    return micros(await client.info("commandstats")) / rounds


def micros(stats: Mapping[str, Any]) -> float:
    """Return the total time of all functions and scripts in µs, from `INFO commandstats`."""
    return float(sum(stats[name]["usec"] for name in CALLS if name in stats))


async def growth_waiting(server: Server, client: "aioredis.Redis", most: int) -> Row:
    """Compare the cost of an operation beside few waiting items to that beside many."""
    found = []
    for count in (100, most):
        bench = Bench(server, f"waiting{count}")
        await bench.open()
        await bench.fill(count)
        found.append(await cost(client, bench, 40))
    return row_at_most("growth_waiting", "µs", found[1], 1.2, found[0])


async def growth_subscribers(server: Server, client: "aioredis.Redis", most: int) -> Row:
    """Compare the cost of an operation beside few subscribers to that beside many."""
    found = []
    for count in (10, most):
        bench = Bench(server, f"subscribers{count}")
        await bench.open()
        idle = tuple(f"idle{number}@localhost/bench" for number in range(count))
        for first in range(0, count, BATCH):
            await bench.subscribe(idle[first : first + BATCH], 1)
        await bench.fill(max(count, BATCH) + 200)
        found.append(await cost(client, bench, 40))
    return row_at_most("growth_subscribers", "µs", found[1], 1.5, found[0])


async def count_idle_commands(client: "aioredis.Redis", url: str, nodes: int, seconds: float) -> Row:
    """Count the commands of an idle frontend whose metrics are served."""
    core = RedisCore(settings(url).model_copy(update={"node_quota": nodes}), Sink())
    await core.start()
    owner = Jid("bench@localhost/1")
    for first in range(0, nodes, 50):
        await asyncio.gather(*(core.ask(Declare(f"idle{first + number}", owner, {})) for number in range(50)))
    # Wait until the new nodes have been measured.
    await asyncio.sleep(5)
    await core.measure()
    before = (await client.info("stats"))["total_commands_processed"]
    await asyncio.sleep(seconds)
    await core.measure()
    # INFO itself is one of them.
    spent = (await client.info("stats"))["total_commands_processed"] - before - 1
    await core.drain(5)
    await core.stop()
    return row_at_most("idle_commands", "commands/s", spent / seconds, 20)


async def measure(url: str, *, quick: bool) -> list[Row]:
    """Measure all rows, and show the progress."""
    client = aioredis.Redis.from_url(url)
    server = Server.connect(url, lua_directory(), 60)
    scale = 20 if quick else 1
    console = Console(stderr=True)
    steps: list[Callable[[], Awaitable[Row]]] = [
        lambda: count_idle_commands(client, url, 1_000 // scale, 15),
        lambda: publish_batch(server, client, 80_000 // scale),
        lambda: acknowledge_batch(server, client, 80_000 // scale),
        lambda: micro_batch(server, url, 20_000 // scale),
        lambda: publish_cpu(client, url, 400 // scale),
        lambda: publish_replicated(100_000 // scale),
        lambda: memory(server, client, "memory_server_id", 50_000 // scale, lambda _: "", 260),
        lambda: memory(server, client, "memory_publisher_id", 50_000 // scale, lambda number: f"{number:032d}", 400),
        lambda: growth_waiting(server, client, 1_000_000 // scale),
        lambda: growth_subscribers(server, client, 10_000 // scale),
    ]
    rows = []
    try:
        with console.status("measuring") as status:
            for number, step in enumerate(steps, 1):
                status.update(f"measuring {number} of {len(steps)}")
                rows.append(await step())
                # In the foreground: memory freed later would count for the next row.
                await server.command("FLUSHALL", "SYNC")
            rows += await calls(client, url, 200 // min(scale, 4))
    finally:
        await server.close()
        await client.aclose()
    return rows


def main(*, as_json: bool, quick: bool) -> int:
    """Run the benchmark on an embedded Redis; 1 when a target is missed."""
    # The event loop of frontends.
    with RedisServer() as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return show(runner.run(measure(server.url, quick=quick)), as_json=as_json)
