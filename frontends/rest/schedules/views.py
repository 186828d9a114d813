"""Writes schedules as JSON. Pure; must not know the core."""

from typing import Any
from urllib.parse import urlencode

from broker import codec, payloads
from broker.model.commands import ListSchedules
from broker.model.nodes.schedules import ScheduledItem, ScheduleStatus
from broker.model.results import ScheduleList
from frontends.rest import paths, replies
from frontends.rest.formats import documents
from frontends.rest.http.values import Response


def write_schedule(node: str, status: ScheduleStatus) -> Response:
    """Write a schedule."""
    return replies.json(_schedule_fields(node, status))


def page(command: ListSchedules, found: ScheduleList) -> Response:
    """Write a page of schedules."""
    said: dict[str, Any] = {"schedules": [_schedule_fields(command.node, each) for each in found.schedules]}
    if found.after:
        query = urlencode({"past": found.after, "limit": command.limit})
        said["next"] = f"{paths.schedules(command.node)}?{query}"
    return replies.json(said)


def _schedule_fields(node: str, status: ScheduleStatus) -> dict[str, Any]:
    counts = {"published": status.published, "missed": status.missed, "skipped": status.skipped}
    said = {
        **status.schedule.write(),
        **status.write_state(),
        **counts,
        "href": paths.schedule(node, status.schedule.id),
    }
    return said if status.item is None else {**said, "message": _message(status.item)}


def _message(item: ScheduledItem) -> dict[str, Any]:
    envelope = codec.unpack(item.envelope)
    hints = {"delay": item.hints.delay_ms // 1000, "priority": item.hints.priority, "ttl": item.hints.ttl_ms // 1000}
    told = {"content_type": payloads.kind(envelope), "group_key": item.key, "headers": dict(envelope.headers), **hints}
    return documents.body(envelope.body) | told
