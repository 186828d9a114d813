"""Nodes and items as people and programs read them: rows of a table, JSON. Pure; must not know a terminal or the core."""

import base64
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from broker import codec, payloads
from broker.model.items import Envelope, Seen
from broker.model.nodes import NodeRecord, shown
from broker.model.problems import CorruptRecord
from broker.model.results import Counted, Summary
from frontends.commands import fields

COUNTS: Final = ("waiting", "in_flight", "delayed", "dying", "subscribers", "oldest")
"""What is told of each node in a list, after its name, its state and its partitions."""

_MANY: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def when(ms: int) -> str:
    """Write a time of Redis's clock."""
    return (
        datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if ms else ""
    )


def age(ms: int) -> str:
    """Write how long something has lasted, in one unit."""
    for unit, name in _MANY:
        if ms >= unit:
            return f"{ms // unit} {name}"
    return f"{ms} ms" if ms else ""


def summary(record: NodeRecord, counted: Counted) -> dict[str, Any]:
    """Give a node of a list."""
    config = record.config
    head = {"node": record.name, "state": config.state.value, "partitions": config.partitions}
    return head | {"queueing": config.queueing, "counts": asdict(counted)}


def summary_row(one: Summary) -> list[str]:
    """Give the same as cells."""
    counted = asdict(one.counted) | {"oldest": age(one.counted.oldest_ms)}
    config = one.record.config
    return [one.record.name, config.state.value, str(config.partitions), *(str(counted[name]) for name in COUNTS)]


def node(record: NodeRecord, counted: Counted) -> dict[str, Any]:
    """Give all that is to be said of one node: what a list has of it, and more."""
    return summary(record, counted) | {
        "incarnation": record.incarnation,
        "revision": record.revision,
        "options": {fields.short(name): value for name, value in shown(record.name, record.config).items()},
        "affiliations": {jid: affiliation.value for jid, affiliation in sorted(record.affiliations.items())},
    }


def node_rows(told: Mapping[str, Any]) -> list[list[str]]:
    """Give the same as pairs, without the braces of JSON."""
    rows = [[name, str(told[name])] for name in ("node", "incarnation", "revision")]
    rows += [[name, value] for name, value in told["options"].items()]
    rows += [[jid, affiliation] for jid, affiliation in told["affiliations"].items()]
    # As lists have it: how long the oldest has waited.
    counts = {
        name.removesuffix("_ms"): age(count) if name == "oldest_ms" else str(count)
        for name, count in told["counts"].items()
    }
    return rows + [[name, count] for name, count in counts.items()]


def item(one: Seen) -> dict[str, Any]:
    """Give all that is to be said of an item, its payload apart."""
    lock = None
    if one.grip:
        lock = {
            "holder": one.grip.holder,
            "token": one.grip.token,
            "since": when(one.grip.since_ms),
            "until": when(one.grip.deadline_ms),
            "frontend": one.grip.frontend,
        }
    return {
        "item": one.item_id,
        "partition": one.partition,
        "position": one.position,
        "state": one.state,
        "published": when(one.published_ms),
        "publisher": one.publisher,
        "key": one.key,
        "attempts": one.attempts,
        "delayed_until": when(one.until_ms),
        "priority": one.priority,
        "ends": when(one.ends_ms),
        "lock": lock,
        "held_before_by": list(one.holders),
        "headers": dict(payloads.said(opened(one))),
        "bytes": len(opened(one).body),
    }


def payload(one: Seen) -> dict[str, str]:
    """Give what an item carries: as text where it is one."""
    envelope = opened(one)
    try:
        return {"content_type": payloads.kind(envelope), "payload": envelope.body.decode()}
    except UnicodeDecodeError:
        return {"content_type": payloads.kind(envelope), "payload_base64": base64.b64encode(envelope.body).decode()}


def item_row(one: Seen) -> list[str]:
    """Give an item as cells."""
    headers = opened(one).headers
    holder = one.grip.holder if one.grip else ""
    reason = headers.get("stanzaq-dead-reason", "")
    return [one.item_id, str(one.partition), one.state, str(one.attempts), when(one.published_ms), holder, reason]


def item_rows(told: Mapping[str, Any]) -> list[list[str]]:
    """Give one item as pairs."""
    rows = []
    for name, value in told.items():
        if isinstance(value, Mapping):
            rows += [[f"{name} {inner}", str(text)] for inner, text in value.items()]
        elif isinstance(value, list):
            rows += [[name, str(text)] for text in value]
        elif value not in {"", None}:
            rows.append([name, str(value)])
    return rows


def opened(one: Seen) -> Envelope:
    """Read an item's envelope, or show its bytes as they are."""
    try:
        return codec.unpack(one.envelope)
    except CorruptRecord:
        return Envelope(one.envelope, "application/octet-stream")
