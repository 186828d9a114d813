"""From results of the core to what is shown of queues and their messages. Pure."""

from collections.abc import Collection, Sequence
from urllib.parse import urlencode

from broker import codec, payloads
from broker.model.items import Listed
from frontends.rest import paths
from frontends.rest.formats.views import Child, Message
from frontends.rest.paths import Place


def message(node: str, item: Listed) -> Message:
    """Give a message as a browse lists it; raises CorruptRecord."""
    envelope = codec.unpack(item.envelope)
    return Message(
        node,
        item.item_id,
        item.state,
        item.publisher,
        item.published_ms,
        payloads.kind(envelope),
        envelope.body,
        payloads.said(envelope),
        payloads.element(envelope),
    )


def children(names: Sequence[str], above: str, collections: Collection[str] = ()) -> list[Child]:
    """Give what is directly below a part of the tree, whose steps are the slashes in names (RX4); a collection is no queue."""
    beginning = f"{above}/" if above else ""
    found: dict[str, bool] = {}
    for name in names:
        if name.startswith(beginning) and name != beginning:
            step, slash, _ = name.removeprefix(beginning).partition("/")
            # An empty step is no part of a path: such a name stands as it is.
            child = f"{beginning}{step}" if step else name
            itself = (not slash or not step) and name not in collections
            found[child] = found.get(child, False) or itself
    return [Child(name, is_queue) for name, is_queue in found.items()]


def following(place: Place, limit: str | None, after: str, below: str) -> str:
    """Give the link to the next page; the cursors are where its two lists go on."""
    given = {"after": after, "below": below} | ({"limit": limit} if limit else {})
    path = paths.queue(place.node) if place.node else paths.QUEUES
    return f"{path}?{urlencode({name: value for name, value in given.items() if value})}"
