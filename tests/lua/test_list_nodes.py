"""list_nodes: names in order of creation, a page at a time."""

import pytest

from tests.lua.records import Records


@pytest.fixture
def named(records: Records) -> Records:
    """Return a service with five nodes; two were created in the same ms."""
    for at, name in ((3, "c"), (1, "z"), (2, "m"), (3, "b"), (9, "a")):
        records.client.zadd(records.key("all_nodes"), {name: at})
    return records


@pytest.mark.parametrize(
    ("wanted", "first", "names"),
    [
        ({}, 0, ["z", "m"]),
        ({"after": "m"}, 2, ["b", "c"]),
        ({"after": "c"}, 4, ["a"]),
        ({"after": "a"}, 5, []),
        ({"index": 3}, 3, ["c", "a"]),
        ({"index": 10**9}, 10**9, []),
        ({"count": 0}, 0, []),
        ({"backwards": "1"}, 3, ["c", "a"]),
        ({"backwards": "1", "before": "c"}, 1, ["m", "b"]),
        ({"backwards": "1", "before": "m"}, 0, ["z"]),
        ({"backwards": "1", "before": "z"}, 0, []),
        ({"backwards": "1", "count": 0}, 5, []),
    ],
)
def test_page(named: Records, wanted: dict[str, str | int], first: int, names: list[str]) -> None:
    """XEP-0059 §2: those after a name, before one, or from a number on; with the number of the first, and how many there are."""
    asked = {"after": "", "before": "", "backwards": "", "index": 0, "count": 2, **wanted}
    assert named.run("list_nodes", **asked) == ["ok", first, 5, names]


@pytest.mark.parametrize("wanted", [{"after": "none"}, {"backwards": "1", "before": "none"}])
def test_not_found(named: Records, wanted: dict[str, str]) -> None:
    """XEP-0059 §2.4: a list does not continue from an unknown node."""
    asked = {"after": "", "before": "", "backwards": "", "index": 0, "count": 2, **wanted}
    assert named.run("list_nodes", **asked) == ["item-not-found"]
