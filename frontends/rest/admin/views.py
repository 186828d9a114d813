"""Writes answers for owners and administrators as JSON. Pure; must not know the core."""

import codecs
import re
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import urlencode

from broker import codec, payloads
from broker.model.commands import Overview
from broker.model.items import attempts
from broker.model.items.items import ItemDetails, LockDetails
from broker.model.names import Jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.results import (
    EndList,
    FrontendList,
    History,
    InspectedItems,
    KeptEnd,
    MovedItems,
    Overviewed,
    Purged,
    QuotaList,
    Released,
    SubscriptionList,
    Summary,
)
from broker.model.times import moment
from frontends.rest import paths, replies
from frontends.rest.http.values import ApiRequest, Response

_DEAD: Final = ("reason", "node", "item", "attempts", "holder", "publisher")
"""The fields of a dead letter's headers `stanzaq-dead-NAME`."""

_Decoder: Final = codecs.getincrementaldecoder("utf-8")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""What no text has."""


def overview(command: Overview, found: Overviewed) -> Response:
    """Write a page of queues with their counts."""
    said: dict[str, Any] = {"queues": [_queue(each) for each in found.nodes], "total": found.total}
    after = command.first + command.limit
    if after < found.total:
        said["next"] = f"{paths.OVERVIEW}?{urlencode({'first': after, 'limit': command.limit})}"
    return replies.json(said)


def survey(request: ApiRequest, preview: int, found: InspectedItems) -> Response:
    """Write a page of items with their details, each with the first `preview` bytes of its payload."""
    node = request.path.node
    said: dict[str, Any] = {
        "items": [_item(node, each, preview) for each in found.items],
        "examined": found.examined,
    }
    if found.scan:
        said["next"] = f"{paths.survey(node)}?{urlencode({**request.query, 'scan': found.scan})}"
    return replies.json(said)


def ends(node: str, preview: int, found: EndList) -> Response:
    """Write how items have ended, each with the first `preview` bytes of its result."""
    return replies.json({"ends": [_end(node, each, preview) for each in found.ends]})


def subscribers(found: SubscriptionList) -> Response:
    """Write the subscribers, each with its program, its credit and held items."""
    listed = [
        {
            "jid": each.jid,
            "subid": each.subid,
            "client": each.client,
            "state": each.state.value,
            "credit": each.credit,
            "held": each.held,
        }
        for each in found.subscriptions
    ]
    return replies.json({"subscribers": listed, "more": found.more})


def affiliations(record: NodeRecord) -> Response:
    """Write the affiliations by JID."""
    return replies.json({"affiliations": {jid: each.value for jid, each in sorted(record.affiliations.items())}})


def requests(found: SubscriptionList) -> Response:
    """Write who asks for a subscription."""
    return replies.json({"requests": [{"jid": each.jid} for each in found.subscriptions]})


def history(found: History) -> Response:
    """Write the samples of the last hour, the oldest first."""
    listed = []
    for each in found.samples:
        said = asdict(each)
        listed.append({"at": moment(said.pop("at_ms")), **said})
    return replies.json({"samples": listed})


def frontends(found: FrontendList) -> Response:
    """Write the frontends, each with its door and the time since its last heartbeat."""
    listed = [
        {"name": each.name, "door": each.door, "heard_ms": each.ago_ms, "disconnected_by": each.disconnected_by}
        for each in found.frontends
    ]
    return replies.json({"frontends": listed})


def quotas(found: QuotaList) -> Response:
    """Write quotas with what is used of them."""
    listed = [
        {"subject": each.subject, "limits": each.quota.limits_by_name(), "used": each.used} for each in found.quotas
    ]
    return replies.json({"quotas": listed})


def redriven(outcome: MovedItems, begins: str) -> Response:
    """Write how many dead letters were moved, why others stayed, and a scan to continue from, which starts with `begins`."""
    said: dict[str, Any] = {"moved": outcome.count, "stayed": dict(outcome.passed)}
    return replies.json(said | ({"scan": f"{begins}{outcome.scan}"} if outcome.scan else {}))


def is_dead_letter_of_another(node: str, one: ItemDetails) -> bool:
    """Tell whether an item is another queue's dead letter; a redriven item keeps the headers of its death."""
    return codec.unpack_any(one.envelope).headers.get("stanzaq-dead-node", node) != node


def write_released(outcome: Released) -> Response:
    """Write how many locks were ended."""
    return replies.json({"released": outcome.count})


def write_purged(outcome: Purged) -> Response:
    """Write how many messages were deleted."""
    return replies.json({"purged": outcome.count})


def _queue(one: Summary) -> dict[str, Any]:
    record, config = one.record, one.record.config
    return {
        "name": record.name,
        "href": paths.queue(record.name),
        "title": config.title,
        "type": config.node_type.value,
        "queueing": config.queueing,
        "parent": record.parent,
        "owner": record.creator or "",
        "state": config.state.value,
        "partitions": config.partitions,
        "standing": one.standing,
        "dead_letters": _dead_letters(record),
        "counts": asdict(one.counted),
    }


def _dead_letters(record: NodeRecord) -> str:
    return "" if record.config.collects else record.config.dead_letters_of(record.name) or ""


def _end(node: str, one: KeptEnd, preview: int) -> dict[str, Any]:
    ended = one.outcome
    said: dict[str, Any] = {
        "id": ended.item_id,
        "href": paths.message(node, ended.item_id),
        "state": ended.state.value,
        "reason": ended.reason,
        "expires": moment(one.expires_ms),
    }
    if ended.envelope:
        envelope = codec.unpack_any(ended.envelope)
        body = envelope.body
        shown = _preview(body, preview) if preview else {}
        said["result"] = {"content_type": payloads.kind(envelope), "bytes": len(body)} | shown
    return said


def _item(node: str, one: ItemDetails, preview: int) -> dict[str, Any]:
    envelope = codec.unpack_any(one.envelope)
    said: dict[str, Any] = {
        "id": one.item_id,
        "queue": node,
        "href": paths.message(node, one.item_id),
        "content_href": paths.content(node, one.item_id),
        "state": one.state,
        "publisher": one.publisher,
        "published": moment(one.published_ms),
        "partition": one.partition,
        "group_key": one.key,
        "attempts": one.attempts,
        "priority": one.priority,
        "content_type": payloads.kind(envelope),
        "bytes": len(envelope.body),
        "headers": dict(payloads.shown_headers(envelope)),
        "held_before_by": list[Jid](one.holders),
        "history": [each.to_json() for each in one.history],
    }
    if preview:
        said |= _preview(envelope.body, preview)
    if one.until_ms:
        said["delayed_until"] = moment(one.until_ms)
    if one.ends_ms:
        said["ends"] = moment(one.ends_ms)
    if one.parents:
        said["after"] = [each.to_json() for each in one.parents]
    if one.awaited_by:
        said["awaited_by"] = [
            {"node": each.node, "href": f"{paths.survey(each.node)}?{urlencode({'scan': each.scan, 'limit': 1})}"}
            for each in one.awaited_by
        ]
    if one.lock:
        said["lock"] = {
            "holder": one.lock.holder,
            "since": moment(one.lock.since_ms),
            "until": moment(one.lock.deadline_ms),
            "frontend": one.lock.frontend,
        } | _progress(one.lock)
    told = {name: envelope.headers.get(f"stanzaq-dead-{name}", "") for name in _DEAD}
    history = {"history": attempts.from_header(envelope.headers.get("stanzaq-dead-history", ""))}
    return said | ({"died": {**told, **history}} if told["node"] else {})


def _preview(body: bytes, most: int) -> dict[str, str]:
    """Return the beginning of a payload as a member of JSON: whole characters; nothing of bytes that are no text."""
    try:
        # The last character may be cut.
        text = _Decoder().decode(body[:most])
    except UnicodeDecodeError:
        return {}
    return {} if _CONTROL.search(text) else {"preview": text}


def _progress(lock: LockDetails) -> dict[str, Any]:
    return {"progress": lock.progress.to_json()} if lock.progress else {}
