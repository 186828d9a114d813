"""Paths and what they name, both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.problems import MalformedRequest
from frontends.rest import paths
from frontends.rest.paths import Place

PRINTABLE = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=50)


@given(PRINTABLE, PRINTABLE)
def test_there_and_back(node: str, item: str) -> None:
    """Every name of a queue and id of a message comes back out of the path that is made of it."""
    if node in {".", ".."} or item in {".", ".."}:
        return
    assert paths.read(paths.queue(node).encode()) == Place(paths.QUEUE, node)
    assert paths.read(paths.message(node, item).encode()) == Place(paths.MESSAGE, node, item)
    assert paths.read(paths.content(node, item).encode()) == Place(paths.CONTENT, node, item)


@given(st.binary(max_size=60))
def test_any_bytes(tail: bytes) -> None:
    """Whatever follows is read, refused or nothing; it never names what cannot be shown."""
    try:
        place = paths.read(b"/queues/" + tail)
    except MalformedRequest:
        return
    assert place is None or (place.node.isprintable() and not {"", ".", ".."} & {place.node})


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        (b"/queues", Place(paths.QUEUES)),
        (b"/openapi.json", Place(paths.OPENAPI)),
        (b"/queues/uk/products", Place(paths.QUEUE, "uk/products")),
        (b"/queues/uk%2fproducts", Place(paths.QUEUE, "uk/products")),
        (b"/queues/foo.bar", Place(paths.QUEUE, "foo.bar")),
        (b"/batches/a/b", Place(paths.BATCH, "a/b")),
        (b"/messages/a/b/c", Place(paths.MESSAGE, "a/b", "c")),
        (b"/contents/a%2Fb/c%2Fd", Place(paths.CONTENT, "a/b", "c/d")),
        (b"/messages/a", None),
        (b"/else/a", None),
        (b"", None),
    ],
)
def test_read(raw: bytes, place: Place | None) -> None:
    """RX4: a path and one segment name the same; a dot is an ordinary character."""
    assert paths.read(raw) == place
