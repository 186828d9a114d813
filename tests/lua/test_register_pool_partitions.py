"""register_pool_partitions: the coordinator of a collection knows the partitions below it."""

from typing import Any

from tests.lua.driver import Queue


def reach(queue: Queue, *names: str, gone: str = "", most: int = 3) -> dict[str, int]:
    """Register partitions; return the number of each."""
    return reached(queue, *names, gone=gone, most=most)[1]


def reached(queue: Queue, *names: str, gone: str = "", most: int = 3) -> tuple[int, dict[str, int]]:
    """Register partitions; return how many are new, and the number of each."""
    rows: list[Any] = [{"partition": name, "gone": gone} for name in names]
    added, found = queue.run("register_pool_partitions", *rows, most=most).rows
    return added, {name: int(number) for name, number in zip(found[::2], found[1::2], strict=True)}


def test_a_number_for_each(queue: Queue) -> None:
    """H7: each partition has a number that no other ever has, the same while it exists; those that are new are counted."""
    added, first = reached(queue, "a@1/0", "b@1/0")
    also, second = reached(queue, "b@1/0", "c@1/0")
    assert (added, also, reached(queue, "c@1/0")[0]) == (2, 1, 0)
    assert first.items() < second.items() and len(set(second.values())) == 3
    assert reach(queue, "c@1/0", "a@1/0", gone="1") == {"b@1/0": first["b@1/0"]}
    assert reach(queue, "a@1/0")["a@1/0"] not in second.values()


def test_nothing_is_left_of_deleted_ones(queue: Queue) -> None:
    """Guarantee 6: the demand of a deleted partition goes with it, met or not."""
    for amount in (0, 2):
        number = reach(queue, "a@1/0")["a@1/0"]
        queue.now += 1
        queue.grant_credit(wants=f"{number} {queue.now * 1000} {amount} A")
        assert queue.client.hlen(queue.key("wanted")) == 1
        reach(queue, "a@1/0", gone="1")
        assert queue.client.hlen(queue.key("wanted")) == queue.client.zcard(queue.key("demand")) == 0


def test_nothing_is_left_of_late_reports(queue: Queue) -> None:
    """Guarantee 6: what was reported of a partition after its deletion goes with the next one that is deleted."""
    numbers = reach(queue, "a@1/0", "b@1/0", "c@1/0")
    reach(queue, "a@1/0", gone="1")
    for name, amount in (("a@1/0", 2), ("c@1/0", 0)):
        queue.now += 1
        queue.grant_credit(wants=f"{numbers[name]} {queue.now * 1000} {amount} A")
    reach(queue, "b@1/0", gone="1")
    assert queue.client.hkeys(queue.key("wanted")) == [str(numbers["c@1/0"]).encode()]
    assert queue.client.zcard(queue.key("demand")) == 0


def test_no_more_than_may_be(queue: Queue) -> None:
    """Guarantee 6: beyond the bound nothing is registered, and deleted ones make room."""
    assert len(reach(queue, *(f"n{number}@1/0" for number in range(5)))) == 3
    assert "m@1/0" not in reach(queue, "m@1/0")
    reach(queue, "n0@1/0", gone="1")
    assert "m@1/0" in reach(queue, "m@1/0")
