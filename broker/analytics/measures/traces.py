"""Replays by node: gathers what came in a window of the interval, and reads off it how many workers it needed.

Nodes are replayed side by side, each by one task. Knows the columns of attempts and of waiting items.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from random import Random
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from broker.analytics.replay import Item, Replayed, Rules, Trace, replay
from broker.journal.schema import AttemptEnd

_RESULT: Final = pa.schema(
    [
        ("node", pa.string()),
        ("needed", pa.int32()),
        ("needed_unbound", pa.int32()),
        ("curve", pa.list_(pa.struct([("workers", pa.int32()), ("wait_ms", pa.float64())]))),
        ("growth", pa.float64()),
        ("offered", pa.float64()),
    ]
)


class Record(NamedTuple):
    """An attempt, open without `closed`, or an item that waits, without `delivered`; `item` tells items apart.

    `turn` orders those that were ready in the same millisecond.
    """

    item: int
    turn: int
    attempt: int
    type: str | None
    ready: int
    delivered: int | None
    closed: int | None


@dataclass(frozen=True, slots=True)
class Window:
    """What of a node is replayed, in ms since 1970: waits from `since` until `until`, after what came from `begin` on."""

    begin: int
    since: int
    until: int
    rules: Rules
    credit: int


def replays(attempts: DataFrame, waiting: DataFrame, windows: Mapping[str, Window], target_ms: float) -> DataFrame:
    """Return by node the fewest workers for the target, the waits with others, and the demand that the credit carries."""
    spans = attempts.sparkSession.createDataFrame(
        [(node, each.begin, each.until) for node, each in windows.items()], "node string, first long, until long"
    )
    tried = attempts.select(
        "node",
        F.xxhash64("incarnation", "partition", "position").alias("item"),
        # The second number of a position counts the items of a millisecond.
        F.split("position", "-")[1].cast("long").alias("turn"),
        *("attempt", "type", F.coalesce("ready", "delivered").alias("ready"), "delivered", "closed"),
    )
    unserved = {
        name: F.lit(None).cast(of) for name, of in (("type", "string"), ("delivered", "long"), ("closed", "long"))
    }
    still = waiting.select(
        "node",
        F.monotonically_increasing_id().alias("item"),
        F.lit(0).alias("turn"),
        F.lit(1).alias("attempt"),
        "ready",
    )
    rows = (
        tried.unionByName(still.withColumns(unserved))
        .join(F.broadcast(spans), "node")
        .where("ready < until and (ready >= first or coalesce(closed, until) > first)")
        .select("node", *Record._fields)
    )

    def one(table: pa.Table) -> pa.Table:
        records = table.sort_by([("ready", "ascending"), ("turn", "ascending")]).to_pydict()
        name = records["node"][0]
        trace = gather(
            map(Record._make, zip(*(records[column] for column in Record._fields), strict=True)), windows[name]
        )
        if not trace.items:
            return _RESULT.empty_table()
        found = replay(trace, target_ms, windows[name].credit)
        return pa.Table.from_pylist([{"node": name, **asdict(found), "curve": _curve(found)}], _RESULT)

    return rows.groupBy("node").applyInArrow(one, from_arrow_schema(_RESULT))


def _curve(found: Replayed) -> list[dict[str, float]]:
    return [{"workers": workers, "wait_ms": wait} for workers, wait in found.curve]


def gather(records: Iterable[Record], window: Window) -> Trace:
    """Make a trace of records in order of `ready`; without items if no attempt says how long one takes.

    What has no end yet, or never began, takes as long as another item, chosen by a fixed chance.
    """
    records, perished = list(records), AttemptEnd.PERISHED.value
    known = [took for each in records if (took := _held_ms(each)) is not None]
    if not known:
        return Trace(())
    chance = Random(0)  # noqa: S311  (no secret)
    begun: dict[tuple[int, int], tuple[int, list[float], float]] = {}
    last: dict[tuple[int, int], tuple[int, int]] = {}
    busy: list[float] = []
    for each in records:
        took = _held_ms(each)
        held = chance.choice(known) if took is None else took
        if each.delivered is not None and each.delivered < window.begin:
            if each.type != perished:
                busy.append(each.delivered + held)
            continue
        expires = float(each.closed) if each.type == perished and each.closed is not None else math.inf
        key = each.item, each.attempt
        # A later attempt belongs to the item that came back; if that is not here, it comes as an item does.
        start = last.get((each.item, each.attempt - 1))
        if start is None:
            begun[key] = each.ready, [held], expires
            last[key] = key
        else:
            ready, before, _ = begun[start]
            begun[start] = ready, [*before, held], expires
            last[key] = start
    items = [Item(ready, tuple(held), expires) for ready, held, expires in begun.values()]
    return Trace(items, window.begin, window.since, window.until, tuple(busy), window.rules)


def _held_ms(of: Record) -> int | None:
    """Return how long an attempt took; None for one without an end, and for an item that nobody got."""
    if of.closed is None or of.delivered is None or of.type == AttemptEnd.PERISHED.value:
        return None
    return max(0, of.closed - of.delivered)
