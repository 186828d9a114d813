"""The streams of a cluster, of sentinels' servers, and of replicas: the rows are the same, and each comes once."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession
from redis.crc import key_slot

from broker import keys
from broker.analytics import processes
from broker.analytics.census import SCHEMA, partition_states
from broker.analytics.faults import Unreadable
from broker.analytics.source import snapshot as snapshot_module
from broker.analytics.source.columns import attempts
from broker.analytics.source.fetch import ReadOptions, fetch
from broker.analytics.source.increments import Increments
from broker.analytics.source.offsets import START, Offset
from broker.analytics.source.options import Options
from broker.analytics.source.plan import begin
from broker.analytics.source.reader import Reader
from broker.analytics.source.servers import Link, Servers
from broker.analytics.source.snapshot import snapshot
from broker.analytics.source.tasks import Task
from broker.journal.schema import JournalPartition
from broker.keys import of_service
from broker.model.commands import Declare, Subscribe
from broker.model.names import Jid, Partition
from broker.model.results import Declared, Subscribed
from broker.redis_core.core import RedisCore
from broker.scaling.usage import Usage
from broker.settings import CommandSettings
from broker.store_format import FORMAT
from frontends.tools.servers.cluster import RedisCluster
from frontends.tools.servers.process import wait_for
from frontends.tools.servers.redis import RedisServer
from frontends.tools.servers.sentinels import RedisSentinels
from tests.admitting import ADMITTING
from tests.analytics.conftest import Journals, numbers, taken
from tests.contract.conftest import Door
from tests.lua.driver import T0, Queue
from tests.operations import as_user, make_user
from tests.waiting import PATIENCE_SECONDS

PARTITIONS = [Partition("jobs", "ab12", number) for number in range(12)]
EXPECTED = [1_000 * number + record for number in range(12) for record in range(50)]


def written(journals: Journals) -> Journals:
    """Write fifty records to each of twelve partitions."""
    for partition in PARTITIONS:
        journals.write(partition, 50, first=1_000 * partition.number)
    return journals


def asked(node: RedisServer) -> int:
    """Count the requests for entries at a process."""
    with redis.Redis.from_url(node.url) as client:
        stats: Any = client.info("commandstats")
        return int(stats.get("cmdstat_xrange", {"calls": 0})["calls"])


@pytest.fixture
def on_cluster(redis_cluster: RedisCluster) -> Iterator[Journals]:
    """Provide journals on all masters of a cluster."""
    redis_cluster.wait_until_well()
    with redis.RedisCluster("127.0.0.1", redis_cluster.running()[0].port) as client:
        client.flushall()
        yield written(Journals(redis_cluster.url, client))


@pytest.fixture
def on_sentinels(redis_sentinels: RedisSentinels) -> Iterator[Journals]:
    """Provide journals on a master with a replica."""
    with redis.Redis.from_url(redis_sentinels.master().url) as client:
        client.flushall()
        yield written(Journals(redis_sentinels.url, client))


def test_credit_through_collections(journals: Journals) -> None:
    """Who subscribes to a collection has credit in each queue below it, once, beside that of the queue's own subscribers."""
    worker = Jid("wörker@x/a b")

    async def subscribed() -> None:
        core = RedisCore(CommandSettings(**ADMITTING, redis_url=journals.url), Door())
        await core.start()
        for node, options in (
            ("all", {"pubsub#node_type": ("collection",)}),
            ("one", {"pubsub#collection": ("all",)}),
            ("other", {"pubsub#collection": ("all",), "stanzaq#partitions": ("2",)}),
        ):
            assert await core.ask(Declare(node, worker, options)) == Declared(node)
        for node, credit in (("all", 5), ("one", 3)):
            assert isinstance(await core.ask(Subscribe(node, worker, worker, credit)), Subscribed)
        await core.drain(PATIENCE_SECONDS)
        await core.stop()

    asyncio.run(subscribed())
    found = partition_states(Servers(journals.url, "master"), Options.read({"url": journals.url}))
    place = SCHEMA.fieldNames().index("credit")
    credit = {(each.node, each.partition): state.row[place] for each, state in found.items()}
    assert credit == {("all", 0): 5, ("one", 0): 8, ("other", 0): 5, ("other", 1): 0}


def test_oldest_behind_versions(journals: Journals, queue: Queue) -> None:
    """An item behind many new versions of others is not hidden: the oldest is one of these at most."""
    names = [f"i{number}" for number in range(150)]
    queue.publish(*names)
    queue.publish(*names)
    queue.subscribe("w@x/a", 150)
    queue.now += 5_000
    queue.publish("late")
    (state,) = partition_states(Servers(journals.url), Options(journals.url)).values()
    waiting, oldest = state.row[4], state.row[6]
    assert waiting == 1
    assert oldest is not None and T0 <= oldest.timestamp() * 1_000 <= T0 + 5_000


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("SET", "{key}", "x"), "inflight"),
        (("HSET", "{key}", "1-1", "no line of a lock"), "inflight"),
        (("HSET", "{key}", "1", "2"), "subscribers"),
        (("HSET", "{key}", "cursor", "nowhere"), "meta"),
        (("ZADD", "{key}", "1", "nowhere"), "by_priority"),
        (("SET", "{key}", "x"), "journal"),
    ],
)
def test_a_damaged_partition(journals: Journals, queue: Queue, command: tuple[str, ...], name: str) -> None:
    """What no script has written fails the read with one line that names the partition and its keys."""
    queue.subscribe("w@x/a", 1)
    queue.publish("a")
    journals.client.execute_command(*(word.format(key=queue.key(name)) for word in command))
    place = re.escape(str(queue.partition))
    with pytest.raises(Unreadable, match=rf"the state of {place} is damaged \(.+\): inspect its keys \(sq:\{{"):
        partition_states(Servers(journals.url), Options(journals.url))


def test_cluster(spark: SparkSession, on_cluster: Journals) -> None:
    """All masters are read, each by tasks of its own."""
    assert numbers(spark.read.format("stanzaq").option("url", on_cluster.url).load()) == EXPECTED
    used = Usage("xmpp", "1edc2653", 60_000, 5, 5)
    on_cluster.client.hset(of_service("process_usage"), used.field, used.value)
    assert processes.samples(Servers(on_cluster.url)) == (used,)
    tasks = Reader(Options(on_cluster.url)).partitions()
    assert len({task.work.process for task in tasks if isinstance(task, Task)}) == len(tasks) == 3


def test_replicas_of_a_cluster(on_cluster: Journals, redis_cluster: RedisCluster) -> None:
    """With the option replicas are read instead; no master is asked for an entry."""
    masters = list(redis_cluster.masters())
    for master in masters:
        redis_cluster.wait_for_replica(master)
    before = [asked(master) for master in masters]
    assert taken(url=on_cluster.url, readFrom="replica") == EXPECTED
    assert [asked(master) for master in masters] == before


@pytest.mark.parametrize("read_from", ["master", "replica"])
def test_a_slot_that_moves(on_cluster: Journals, redis_cluster: RedisCluster, read_from: str) -> None:
    """A stream that moves to another master while it is read is followed, and nothing of it comes twice."""
    servers = Servers(on_cluster.url, read_from)
    for master in redis_cluster.masters():
        redis_cluster.wait_for_replica(master)
    bounds = next(
        bounds for place, bounds in snapshot(servers, Options(on_cluster.url)).items() if place.partition == 0
    )
    entries = fetch(servers, bounds.process, [begin(bounds, Offset(START))], ReadOptions(10, watched=True, refuse=True))
    found = [entry for _, chunk in islice(entries, 2) for entry in chunk]
    slot = key_slot(bounds.key.encode())
    owner = redis_cluster.owner(slot)
    target = next(master for master in redis_cluster.masters() if master is not owner)
    redis_cluster.move(slot, target)
    found += [entry for _, chunk in entries for entry in chunk]
    assert attempts(bounds.partition, found)["token"].to_pylist() == list(range(50))
    redis_cluster.move(slot, owner)


@contextmanager
def half_moved(cluster: RedisCluster, key: str, *moved: str) -> Iterator[None]:
    """Have a key's slot between two masters for as long as this lasts, with these keys at the other one."""
    slot = key_slot(key.encode())
    owner = cluster.owner(slot)
    target = next(master for master in cluster.masters() if master is not owner)
    cluster.begin_move(slot, target)
    cluster.ask(owner, "MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *moved)
    try:
        yield
    finally:
        cluster.move(slot, target)
        cluster.move(slot, owner)


def test_a_user_of_a_cluster(on_cluster: Journals, redis_cluster: RedisCluster) -> None:
    """With what docs/operations.md adds for a cluster, the user of reports reads all of it."""
    try:
        for node in redis_cluster.running():
            make_user(node.url, "reports", "+cluster|slots", "+cluster|nodes", "+asking")
        url = as_user(on_cluster.url, "reports")
        assert taken(url=url) == EXPECTED
        key = keys.of_partition("journal", PARTITIONS[0])
        with half_moved(redis_cluster, key, key):
            assert taken(url=url) == EXPECTED
        assert partition_states(Servers(url), Options(url)) == {}
    finally:
        for node in redis_cluster.running():
            redis_cluster.ask(node, "ACL", "DELUSER", "reports")


def test_a_stream_on_its_way(on_cluster: Journals, redis_cluster: RedisCluster) -> None:
    """A stream that has moved while its slot is moving still is neither missing nor lost, however long that lasts."""
    key = keys.of_partition("journal", PARTITIONS[0])
    increments, one_by_one = (Increments(Options(on_cluster.url, max_offsets_per_trigger=most)) for most in (None, 900))
    start = increments.latestOffset({}, increments.getDefaultReadLimit())
    with half_moved(redis_cluster, key, key):
        assert taken(url=on_cluster.url) == EXPECTED
        end = increments.latestOffset(start, increments.getDefaultReadLimit())
        assert end == start
        increments.partitions(start, end)
        assert one_by_one.latestOffset({}, one_by_one.getDefaultReadLimit()) == start


def test_a_stream_that_both_scans_miss(
    on_cluster: Journals, redis_cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that moves to a process just scanned from one to be scanned yet is found all the same."""
    first, *_, last = sorted(redis_cluster.masters(), key=lambda master: master.port)
    slot = next(
        slot
        for slot in (key_slot(keys.of_partition("journal", each).encode()) for each in PARTITIONS)
        if redis_cluster.owner(slot) is last
    )
    scan = snapshot_module._scan

    def scanned(link: Link, name: str) -> dict[str, JournalPartition]:
        found = scan(link, name)
        if redis_cluster.owner(slot) is last:
            redis_cluster.move(slot, first)
        return found

    monkeypatch.setattr(snapshot_module, "_scan", scanned)
    assert taken(url=on_cluster.url) == EXPECTED
    redis_cluster.move(slot, last)


def test_a_state_on_its_way(on_cluster: Journals, redis_cluster: RedisCluster) -> None:
    """A partition of whose keys some have moved is read at both places; so no history takes it for deleted."""
    of = partial(keys.of_partition, partition=PARTITIONS[0])
    on_cluster.client.hset(of("meta"), mapping={"cursor": "0-0", "journal_max": "100"})
    servers, options = Servers(on_cluster.url), Options(on_cluster.url)
    (before,) = partition_states(servers, options).values()
    for moved in ("meta", "journal"):
        with half_moved(redis_cluster, of("meta"), of(moved)):
            (state,) = partition_states(servers, options).values()
        rows = [dict(zip(SCHEMA.names, each.row, strict=False)) for each in (state, before)]
        assert all(rows[0][name] == rows[1][name] for name in rows[0].keys() - {"at", "used_memory", "maxmemory"})


def test_sentinels(on_sentinels: Journals, redis_sentinels: RedisSentinels) -> None:
    """Sentinels name the master, and the master its replica; each has all rows."""
    master = redis_sentinels.master()
    redis_sentinels.wait_for_replicas(master)
    (replica,) = (node for node in redis_sentinels.nodes if node is not master)
    counted = Counter({node.port: -asked(node) for node in (master, replica)})
    assert taken(url=on_sentinels.url) == EXPECTED
    counted.update({node.port: asked(node) for node in (master, replica)})
    assert counted[master.port] > 0 == counted[replica.port]
    assert taken(url=on_sentinels.url, readFrom="replica") == EXPECTED
    assert asked(replica) > 0
    # A replica may be named itself.
    assert taken(url=replica.url, readFrom="replica") == EXPECTED


def test_a_replica_that_is_away() -> None:
    """Without a reachable replica that follows its master, one line says so and what to do."""
    with RedisServer(port=0) as master, RedisServer(port=0) as replica:
        with redis.Redis.from_url(master.url) as client, redis.Redis.from_url(replica.url) as follower:
            written(Journals(master.url, client))
            follower.replicaof("127.0.0.1", master.port)
            wait_for(lambda: follower.execute_command("ROLE")[3] == b"connected", 10, "the replica does not follow")
            assert taken(url=master.url, readFrom="replica") == EXPECTED
            follower.replicaof("127.0.0.1", 1)
        with pytest.raises(Unreadable, match=r"^the replica at 127.0.0.1:\d+ has no connection to its master: wait"):
            taken(url=replica.url, readFrom="replica")
        replica.kill()
        with pytest.raises(Unreadable, match=r"^no replica of 127.0.0.1:\d+ can be reached: start one, or read from"):
            taken(url=master.url, readFrom="replica")


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("redis+cluster://127.0.0.1:1,127.0.0.1:2", "Redis at 127.0.0.1:2 cannot be reached"),
        ("redis+sentinel://127.0.0.1:1/stanzaq", "the sentinel at 127.0.0.1:1 cannot be reached"),
        ("embedded://", "the url of Redis: "),
    ],
)
def test_nobody_there(url: str, line: str) -> None:
    """Addresses where nobody listens are reported in one line."""
    with pytest.raises(Unreadable, match=line):
        taken(url=url)


def test_the_distributions_redis(redis7: RedisServer) -> None:
    """Redis 7.0 answers the scripts as Valkey does: a snapshot, increments with a limit, and losses."""
    with redis.Redis.from_url(redis7.url) as client:
        client.flushall()
        journals = written(Journals(redis7.url, client))
        assert taken(url=redis7.url) == EXPECTED
        increments = Increments(Options(redis7.url, max_offsets_per_trigger=30))
        start = increments.initialOffset()
        end = increments.latestOffset(start, increments.getDefaultReadLimit())
        tasks = increments.partitions(start, end)
        assert sum(rows.num_rows for task in tasks for rows in increments.read(task)) == 30
        for partition in PARTITIONS:
            journals.trim(partition, 10)
        with pytest.raises(Unreadable, match=r"^journal of jobs@ab12/\d+: \d+ records after .* were dropped before"):
            [list(increments.read(task)) for task in increments.partitions(end, increments.reportLatestOffset())]


def test_another_service(redis_sentinels: RedisSentinels) -> None:
    """Sentinels that watch something else say so."""
    with pytest.raises(Unreadable, match=r"^no sentinel knows a master of 'others': correct the service"):
        taken(url=redis_sentinels.url.replace("/stanzaq", "/others"))


def test_no_cluster(valkey: RedisServer) -> None:
    """A server that is none of a cluster says so."""
    with RedisServer(port=0) as server, pytest.raises(Unreadable, match=r"^Redis at 127.0.0.1:\d+ answers "):
        taken(url=f"redis+cluster://127.0.0.1:{server.port}")


def test_a_user_that_may_not(journals: Journals) -> None:
    """A refusal by Redis is reported with its text."""
    journals.client.execute_command("ACL", "SETUSER", "reports", "on", ">pass", "~*", "+ping")
    try:
        with pytest.raises(Unreadable, match=r"answers .*correct the url, or what its user may do"):
            taken(url=f"{journals.url}?username=reports&password=pass")
    finally:
        journals.client.execute_command("ACL", "DELUSER", "reports")


def test_a_user_that_only_reads(journals: Journals) -> None:
    """The permissions in docs/operations.md for a user of reports suffice to read, and not to write."""
    written(journals)
    make_user(journals.url, "reports")
    try:
        url = as_user(journals.url, "reports")
        assert taken(url=url) == EXPECTED
        assert partition_states(Servers(url), Options(url)) == {}
        with redis.Redis.from_url(url) as client, pytest.raises(redis.exceptions.NoPermissionError):
            client.delete("sq:{jobs@ab12/0}:journal")
    finally:
        journals.client.execute_command("ACL", "DELUSER", "reports")


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (FORMAT + 1, f"^Redis holds a store of format {FORMAT + 1}, .* keeps format {FORMAT}: install"),
        (None, f"^Redis holds a store of format 0, .* keeps format {FORMAT}: work its queues empty"),
    ],
)
def test_another_format(journals: Journals, found: int | None, line: str) -> None:
    """A store of another version is refused, not misread."""
    written(journals)
    journals.client.zadd(keys.of_service("all_nodes"), {"jobs": 1})
    if found:
        journals.client.hset(keys.of_service("store"), "format", found)
    with pytest.raises(Unreadable, match=line):
        taken(url=journals.url)
    with pytest.raises(Unreadable, match=line):
        partition_states(Servers(journals.url), Options(journals.url))


def test_keys_of_others(journals: Journals) -> None:
    """Other keys in the same Redis are ignored."""
    written(journals)
    journals.client.xadd("sq:{jid:someone@x}:journal", {"a": "b"})
    journals.client.set("sq:{jobs@ab12/99}:journal", "text")
    journals.client.xadd(keys.of_partition("journal", Partition("a {b} %7B", "cd34")), Journals.record(7, 1_000_000))
    assert taken(url=journals.url) == sorted([7, *EXPECTED])
    (place,) = (place for place in snapshot(Servers(journals.url), Options(journals.url)) if place.node != "jobs")
    assert place == ("a {b} %7B", "cd34", 0)
