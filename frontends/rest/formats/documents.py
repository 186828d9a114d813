"""Writes queues and messages as JSON. Pure."""

import json
from base64 import b64encode
from dataclasses import asdict
from typing import Any, Final

from broker.model.times import moment
from frontends.rest import paths
from frontends.rest.formats.views import Child, HeldMessages, Message, Page

PENDING: Final = "pending"
"""The state of a message that has not ended, for its publisher, who waits for the end and may see no more of it."""


def page(shown: Page) -> bytes:
    """Write a page of a queue or the tree."""
    said: dict[str, Any] = {
        "name": shown.name,
        "href": shown.href,
        "title": shown.title,
        "is_queue": shown.is_queue,
        "children": [_child(each) for each in shown.children],
        "messages": [_write_listed(each) for each in shown.messages],
    }
    if shown.counted:
        # An age would change the document, and so its tag, on every read.
        said["counts"] = {name: count for name, count in asdict(shown.counted).items() if name != "oldest_ms"}
    if shown.options is not None:
        said["options"] = dict(shown.options)
    if shown.following:
        said["next"] = shown.following
    return write_json(said)


def message(shown: Message) -> bytes:
    """Write a complete message."""
    return write_json(show_message(shown))


def write_held(shown: HeldMessages) -> bytes:
    """Write the messages that a subscription holds, each complete."""
    said = {
        "href": shown.href,
        "expires": moment(shown.expires_ms),
        "messages": [show_message(each) for each in shown.messages],
        "more": shown.more,
        "owned": shown.owned,
    }
    return write_json(said)


def write_json(said: object) -> bytes:
    """Write JSON."""
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()


def body(content: bytes) -> dict[str, str]:
    """Return a body as a member of JSON: text if it is UTF-8."""
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}


def _child(shown: Child) -> dict[str, Any]:
    return {"name": shown.name, "href": paths.queue(shown.name), "is_queue": shown.is_queue}


def show_message(shown: Message) -> dict[str, Any]:
    """Return a message, complete."""
    said = _write_listed(shown) | body(shown.body)
    if shown.lock:
        lock = shown.lock
        said |= {"queue": shown.node, "group_key": lock.key, "token": lock.token, "attempt": lock.attempt}
        said |= {"max_attempts": lock.max_attempts, "expires": moment(lock.expires_ms), "lock_seconds": lock.seconds}
        said |= {"reply": True} if lock.reply else {}
        said |= {action.replace("-", "_"): href for action, href in lock.actions.items()}
    return said


def _write_listed(shown: Message) -> dict[str, Any]:
    said = {"progress": shown.progress.to_json()} if shown.progress else {}
    return said | {
        "id": shown.item_id,
        "href": shown.href,
        "content_href": shown.content_href,
        "state": shown.state,
        "publisher": shown.publisher,
        "published": moment(shown.published_ms),
        "content_type": shown.content_type,
        "bytes": len(shown.body),
        "headers": dict(shown.headers),
    }
