"""Paths and what they name, both ways."""

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.problems import MalformedRequest
from frontends.rest import paths
from frontends.rest.paths import ResourcePath

PRINTABLE = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=50) | st.sampled_from(
    [".", "..", "=.", "a/.", "../b", "=./."]
)


@given(PRINTABLE, PRINTABLE)
def test_there_and_back(node: str, item: str) -> None:
    """Every name of a queue and id of a message comes back out of the path that is made of it."""
    for path in (paths.queue(node), paths.message(node, item), paths.held_message("S", item)):
        # Neither clients nor proxies find a step in it.
        assert not {"", ".", ".."} & {unquote(each) for each in path.split("/")[1:]}
    assert paths.read(paths.queue(node).encode()) == ResourcePath(paths.QUEUE, node)
    assert paths.read(paths.held_message("S", item).encode()) == ResourcePath(paths.HELD, item=item, subscription="S")
    assert paths.read(paths.message(node, item).encode()) == ResourcePath(paths.MESSAGE, node, item)
    assert paths.read(paths.content(node, item).encode()) == ResourcePath(paths.CONTENT, node, item)


@given(st.binary(max_size=60))
def test_any_bytes(tail: bytes) -> None:
    """Whatever follows is read, refused or nothing; it never names what cannot be shown."""
    try:
        path = paths.read(b"/queues/" + tail)
    except MalformedRequest:
        return
    assert path is None or (path.node.isprintable() and path.node)


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"/queues", ResourcePath(paths.QUEUES)),
        (b"/openapi.json", ResourcePath(paths.OPENAPI)),
        (b"/queues/uk/products", ResourcePath(paths.QUEUE, "uk/products")),
        (b"/queues/uk%2fproducts", ResourcePath(paths.QUEUE, "uk/products")),
        (b"/queues/foo.bar", ResourcePath(paths.QUEUE, "foo.bar")),
        (b"/batches/a/b", ResourcePath(paths.BATCH, "a/b")),
        (b"/messages/a/b/c", ResourcePath(paths.MESSAGE, "a/b", "c")),
        (b"/contents/a%2Fb/c%2Fd", ResourcePath(paths.CONTENT, "a/b", "c/d")),
        (b"/messages/a", None),
        (b"/else/a", None),
        (b"", None),
    ],
)
def test_read(raw: bytes, path: ResourcePath | None) -> None:
    """RX4: a path and one segment name the same; a dot is an ordinary character."""
    assert paths.read(raw) == path
