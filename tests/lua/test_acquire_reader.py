"""acquire_reader: a link owns reading the partition for a group."""

from typing import Any

import pytest

from tests.lua.driver import Queue

MOST = str(2**63 - 1)


def bind(queue: Queue, epoch: str = "", *, group: str = "g", fence: int | str = "", equal: str = "") -> list[Any]:
    """Bind one link."""
    row: list[Any] = queue.run("acquire_reader", {"group": group, "epoch": epoch, "equal": equal, "fence": fence}).rows[
        0
    ]
    return row


def unbind(queue: Queue, fence: int, *, kept: str = "", group: str = "g") -> str:
    """Unbind it."""
    return queue.run("release_reader", {"group": group, "fence": fence, "kept": kept}).words[0]


def test_first(queue: Queue) -> None:
    """E27, EX15: without an epoch it gets the one after the seed; groups are independent."""
    assert bind(queue)[:2] == ["ok", "1"]
    assert bind(queue, "0", group="h")[:2] == ["ok", "0"]
    assert bind(queue, MOST, group="i")[:2] == ["ok", MOST]


@pytest.mark.parametrize(("epoch", "code"), [("", "partition-owned"), ("6", "partition-owned"), ("7", "partition-owned"),
    ("8", "ok"), (MOST, "ok")])  # fmt: skip
def test_while_one_is_active(queue: Queue, epoch: str, code: str) -> None:
    """E28, EX13, EX14: only a greater epoch takes it; the fence rises, and reading under the old one is refused."""
    _, _, fence, _ = bind(queue, "7")
    found = bind(queue, epoch)
    assert found[0] == code and (code == "ok" or found[1] == "7")
    stolen = code == "ok"
    assert (queue.log_page(group="g", fence=fence) == ["superseded"]) is stolen
    assert bind(queue, fence=fence)[0] == ("superseded" if stolen else "ok")
    if stolen:
        assert found[2] > fence
        assert queue.log_page(group="g", fence=found[2])[:2] == ["ok", 0]
        assert unbind(queue, fence) == "superseded"
        assert bind(queue, fence=found[2])[0] == "ok"


def test_equal(queue: Queue) -> None:
    """EX13: Event Hubs clients may use the present epoch, also after a lost connection, but not a lower one."""
    fence = bind(queue, "7")[2]
    assert bind(queue, "6", equal="1") == ["partition-owned", "7"]
    second = bind(queue, "7", equal="1")
    assert second[:2] == ["ok", "7"] and second[2] > fence
    assert bind(queue, fence=fence) == ["superseded"]
    unbind(queue, second[2], kept="1")
    assert bind(queue, "6", equal="1")[0] == "partition-owned"
    assert bind(queue, "7", equal="1")[:2] == ["ok", "7"]


def test_beside_an_owner(queue: Queue) -> None:
    """EX14: reading for a group without ownership works while nobody owns it; a lost link owns nothing."""
    queue.publish("a")
    plain = queue.read(group="g")
    assert plain
    fence = bind(queue, "7")[2]
    assert queue.log_page(group="g") == ["superseded"]
    assert queue.read(group="h") == plain
    unbind(queue, fence, kept="1")
    assert queue.read(group="g") == plain


def test_closed(queue: Queue) -> None:
    """E29, EX11: an orderly end resets the epoch, never the fence."""
    fence = bind(queue, "7")[2]
    assert unbind(queue, fence) == "ok"
    again = bind(queue, "0")
    assert again[:2] == ["ok", "0"] and again[2] > fence


def test_lost(queue: Queue) -> None:
    """EX11, EX15: after a lost connection the slot is free, and the epoch holds until the lease would have ended."""
    fence = bind(queue, "7")[2]
    assert unbind(queue, fence, kept="1") == "ok"
    assert bind(queue, fence=fence) == ["superseded"]
    assert bind(queue, "7") == ["partition-owned", "7"]
    second = bind(queue)
    assert second[:2] == ["ok", "8"]
    unbind(queue, second[2], kept="1")
    queue.now += 60_000
    assert bind(queue, "0")[:2] == ["ok", "0"]


def test_lease(queue: Queue) -> None:
    """EX16: a link that does not renew its lease loses it; renewals keep it, with few writes."""
    _, _, fence, ends = bind(queue, "7")
    queue.now += 29_000
    assert bind(queue, fence=fence)[3] == ends
    queue.now += 1_000
    assert bind(queue, fence=fence)[3] == queue.now + 60_000
    queue.now += 60_000
    assert bind(queue, fence=fence) == ["superseded"]
    assert bind(queue)[:2] == ["ok", "1"]


def test_most_groups(queue: Queue) -> None:
    """Guarantee 6: a partition has a bounded number of groups, and those that are over make room."""
    rows = [{"group": f"g{number}", "epoch": "", "equal": "", "fence": ""} for number in range(1_000)]
    assert set(queue.run("acquire_reader", *rows).words) == {"ok"}
    assert bind(queue, group="one more") == ["too-many-subscriptions"]
    queue.now += 60_000
    assert bind(queue, group="one more")[0] == "ok"
    assert queue.client.hlen(queue.key("reader_owners")) == 1
