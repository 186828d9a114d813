"""Consumer groups: how partitions are spread over members that name none. Pure; must not know how they are handed over.

Every frontend computes the same from the same: no order of arrival, no chance.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import cycle
from typing import Final

DEFAULT_GROUP: Final = "$default"
"""The group of an owner that names none."""

GROUP_BYTES: Final = 255


def is_name(group: str) -> bool:
    """Tell whether a text may name a group: printable, without blanks, because lists of groups have blanks between."""
    return 0 < len(group.encode()) <= GROUP_BYTES and group.isprintable() and " " not in group


def share(credit: int, partitions: int) -> int:
    """Divide a member's credit: what it has in each partition that is handed to it.

    Any partition may come to be its own, so it is divided by all of them: however they are handed about, and by however
    many frontends at once, the parts never come to more than the whole (guarantee 3).
    """
    return max(1, credit // partitions)


def spread(most: Mapping[str, int], holders: Mapping[int, str | None]) -> dict[int, str]:
    """Give each partition to a member: evenly, and with as few changes to who holds what as that takes.

    `most` says for each member how many it can have; `holders` of each partition whose it is now: None, or one who is no
    member, means that it is free. Members beyond the number of partitions get none (EX19).
    """
    held = Counter(holder for holder in holders.values() if holder in most)
    # Whoever holds the most keeps the most.
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
    """Deal partitions out one by one, in turn, to those who can have another."""
    room: Counter[str] = Counter()
    left = min(partitions, sum(most.values()))
    turns = cycle(most)
    while left:
        member = next(turns)
        if room[member] < most[member]:
            room[member] += 1
            left -= 1
    return room
