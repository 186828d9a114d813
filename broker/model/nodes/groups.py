"""Consumer groups: how partitions are spread over members. Pure; must not know how they are handed over.

The result depends on nothing but the arguments, so every frontend computes the same.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import cycle
from typing import Final

DEFAULT_GROUP: Final = "$default"
"""The group of an owner that names none."""

GROUP_BYTES: Final = 255


def is_name(group: str) -> bool:
    """Return whether a text may name a group: printable, without blanks, which separate groups in a list."""
    return 0 < len(group.encode()) <= GROUP_BYTES and group.isprintable() and " " not in group


def share(credit: int, partitions: int) -> int:
    """Return a member's credit in each partition that it owns.

    Credit is divided by the number of all partitions: however many the member gets, even by several frontends at once, the
    shares never exceed its credit (guarantee 3).
    """
    return max(1, credit // partitions)


def assign_evenly(most: Mapping[str, int], holders: Mapping[int, str | None]) -> dict[int, str]:
    """Assign partitions to members evenly, with as few changes of owners as possible.

    `most` is how many partitions each member can own; `holders` are the present owners: None, or one that is no member, means
    free. Members beyond the number of partitions get none (EX19).
    """
    held = Counter(holder for holder in holders.values() if holder in most)
    # Members that own most keep most.
    ranked = sorted((member for member in most if most[member] > 0), key=lambda member: (-held[member], member))
    room = _evenly({member: most[member] for member in ranked}, len(holders))
    given: dict[int, str] = {}
    for partition, holder in sorted(holders.items()):
        if holder is not None and room.get(holder, 0):
            room[holder] -= 1
            given[partition] = holder
    takers = (member for member in ranked for _ in range(room[member]))
    free = (partition for partition in sorted(holders) if partition not in given)
    return given | dict(zip(free, takers, strict=False))


def _evenly(most: Mapping[str, int], partitions: int) -> Counter[str]:
    """Deal out partitions one by one in turn, to members that can own another."""
    room: Counter[str] = Counter()
    left = min(partitions, sum(most.values()))
    turns = cycle(most)
    while left:
        member = next(turns)
        if room[member] < most[member]:
            room[member] += 1
            left -= 1
    return room
