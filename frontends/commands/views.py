"""Nodes and items for people and programs: table rows and JSON. Pure; must not know a terminal or the core."""

import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from broker import codec, payloads
from broker.model.items import attempts
from broker.model.items.items import ItemDetails
from broker.model.names import Jid
from broker.model.nodes.nodes import NodeRecord, form_values
from broker.model.results import Counted, Summary
from broker.model.times import moment
from frontends.commands import fields

COUNTS: Final = ("waiting", "in_flight", "delayed", "dying", "subscribers", "oldest")
"""The counts of each node in a list, after its name, state and partitions."""

_MANY: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def format_time(ms: int) -> str:
    """Format a time of Redis's clock."""
    return moment(ms) if ms else ""


def age(ms: int) -> str:
    """Format a duration, in one unit."""
    for unit, name in _MANY:
        if ms >= unit:
            return f"{ms // unit} {name}"
    return f"{ms} ms" if ms else ""


def summary(record: NodeRecord, counted: Counted, shares: Mapping[Jid, float] | None = None) -> dict[str, Any]:
    """Return a node of a list as a JSON object; `shares` are those that owners use of their quotas."""
    config = record.config
    share = (shares or {}).get(record.creator or Jid(""))
    head = {"node": record.name, "state": config.state.value, "partitions": config.partitions}
    owner = {"owner": record.creator} | ({} if share is None else {"quota_used": round(share, 3)})
    return head | {"queueing": config.queueing, "counts": asdict(counted)} | owner


def summary_row(one: Summary, shares: Mapping[Jid, float]) -> list[str]:
    """Return it as cells."""
    owner = one.record.creator or Jid("")
    quota = f"{100 * shares[owner]:.0f} %" if owner in shares else ""
    counted = asdict(one.counted) | {"oldest": age(one.counted.oldest_ms)}
    config = one.record.config
    return [
        one.record.name,
        config.state.value,
        str(config.partitions),
        *(str(counted[name]) for name in COUNTS),
        owner,
        quota,
    ]


def node(record: NodeRecord, counted: Counted) -> dict[str, Any]:
    """Return one node as a JSON object: as in a list, with options and affiliations."""
    return summary(record, counted) | {
        "incarnation": record.incarnation,
        "revision": record.revision,
        "options": {fields.short_name(name): value for name, value in form_values(record.name, record.config).items()},
        "affiliations": {jid: affiliation.value for jid, affiliation in sorted(record.affiliations.items())},
    }


def node_rows(told: Mapping[str, Any]) -> list[list[str]]:
    """Return it as pairs."""
    rows = [[name, str(told[name])] for name in ("node", "incarnation", "revision")]
    rows += [[name, value] for name, value in told["options"].items()]
    rows += [[jid, affiliation] for jid, affiliation in told["affiliations"].items()]
    # As in a list: the age of the oldest item.
    counts = {
        name.removesuffix("_ms"): age(count) if name == "oldest_ms" else str(count)
        for name, count in told["counts"].items()
    }
    return rows + [[name, count] for name, count in counts.items()]


ATTEMPT: Final = ("ended", "outcome", "holder", "reason")
"""What is told of an attempt that failed."""


def lock(one: ItemDetails) -> dict[str, Any] | None:
    """Return an item's lock as a JSON object, if it has one."""
    if one.lock is None:
        return None
    return {
        "holder": one.lock.holder,
        "token": one.lock.token,
        "since": format_time(one.lock.since_ms),
        "until": format_time(one.lock.deadline_ms),
        "frontend": one.lock.frontend,
        "progress": one.lock.progress.to_json() if one.lock.progress else None,
    }


def history(one: ItemDetails) -> dict[str, list[dict[str, str]]]:
    """Return an item's attempts that failed, the oldest first: in this node, and before it became a dead letter."""
    died = attempts.from_header(codec.unpack_any(one.envelope).headers.get("stanzaq-dead-history", ""))
    return {"history": [each.to_json() for each in one.history], "history_of_death": died}


def item(one: ItemDetails) -> dict[str, Any]:
    """Return an item as a JSON object, without its payload."""
    return {
        "item": one.item_id,
        "partition": one.partition,
        "position": one.position,
        "state": one.state,
        "published": format_time(one.published_ms),
        "publisher": one.publisher,
        "key": one.key,
        "attempts": one.attempts,
        "delayed_until": format_time(one.until_ms),
        "priority": one.priority,
        "ends": format_time(one.ends_ms),
        "after": [each.to_json() for each in one.parents],
        "awaited_by": [asdict(each) for each in one.awaited_by],
        "lock": lock(one),
        "held_before_by": list(one.holders),
        **history(one),
        "headers": dict(payloads.shown_headers(codec.unpack_any(one.envelope))),
        "bytes": len(codec.unpack_any(one.envelope).body),
    }


def payload(one: ItemDetails) -> dict[str, str]:
    """Return an item's payload, as text if it is UTF-8."""
    envelope = codec.unpack_any(one.envelope)
    try:
        return {"content_type": payloads.kind(envelope), "payload": envelope.body.decode()}
    except UnicodeDecodeError:
        return {"content_type": payloads.kind(envelope), "payload_base64": base64.b64encode(envelope.body).decode()}


def item_row(one: ItemDetails) -> list[str]:
    """Return an item as cells."""
    headers = codec.unpack_any(one.envelope).headers
    holder = one.lock.holder if one.lock else ""
    reason = headers.get("stanzaq-dead-reason", "")
    return [
        one.item_id,
        str(one.partition),
        one.state,
        str(one.attempts),
        format_time(one.published_ms),
        holder,
        reason,
    ]


def item_rows(told: Mapping[str, Any]) -> list[list[str]]:
    """Return an item as pairs."""
    rows = []
    for name, value in told.items():
        if isinstance(value, Mapping):
            rows += [[f"{name} {inner}", _format_value(text)] for inner, text in value.items() if text is not None]
        elif isinstance(value, list):
            rows += [[name, " ".join(text.values()) if isinstance(text, Mapping) else str(text)] for text in value]
        elif value not in {"", None}:
            rows.append([name, str(value)])
    return rows


def _format_value(value: object) -> str:
    return " ".join(map(str, value.values())) if isinstance(value, Mapping) else str(value)
