"""release_reader: ends a link's ownership; epochs afterwards are tested with `acquire_reader`."""

from tests.lua.driver import Queue


def test_of_what_is_not_owned(queue: Queue) -> None:
    """E29: a link that owns nothing ends nothing, and leaves nothing."""
    assert queue.run("release_reader", {"group": "g", "fence": 5, "kept": ""}).words == ["superseded"]
    assert queue.client.exists(queue.key("reader_owners")) == 0


def test_frees_the_key(queue: Queue) -> None:
    """Guarantee 6: the key goes with the last group."""
    fence = queue.run("acquire_reader", {"group": "g", "epoch": "3", "equal": "", "fence": ""}).rows[0][2]
    assert queue.run("release_reader", {"group": "g", "fence": fence, "kept": ""}).words == ["ok"]
    assert queue.client.exists(queue.key("reader_owners")) == 0
