"""Turns results of the core into views of queues and messages. Pure."""

from collections.abc import Collection, Mapping, Sequence
from urllib.parse import urlencode

from broker import codec, payloads
from broker.model.items.items import Listed
from frontends.rest import paths
from frontends.rest.formats.views import Child, Message
from frontends.rest.paths import ResourcePath


def message(node: str, item: Listed) -> Message:
    """Return the view of a browsed message; one that cannot be read is shown as its stored bytes."""
    envelope = codec.unpack_any(item.envelope)
    return Message(
        node,
        item.item_id,
        item.state,
        item.publisher,
        item.published_ms,
        payloads.kind(envelope),
        envelope.body,
        payloads.shown_headers(envelope),
        payloads.element(envelope),
        progress=item.progress,
    )


def children(names: Sequence[str], above: str, collections: Collection[str] = ()) -> list[Child]:
    """Return the children of a part of the tree, whose levels are the slashes in names (RX4); a collection is not a queue."""
    beginning = f"{above}/" if above else ""
    found: dict[str, bool] = {}
    for name in names:
        if name.startswith(beginning) and name != beginning:
            step, slash, _ = name.removeprefix(beginning).partition("/")
            # An empty level cannot be a path segment: show the whole name.
            child = f"{beginning}{step}" if step else name
            itself = (not slash or not step) and name not in collections
            found[child] = found.get(child, False) or itself
    return [Child(name, is_queue) for name, is_queue in found.items()]


def next_page_link(path: ResourcePath, query: Mapping[str, str]) -> str:
    """Return the link to the next page."""
    return f"{paths.queue(path.node) if path.node else paths.QUEUES}?{urlencode(query)}"
