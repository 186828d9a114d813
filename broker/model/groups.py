"""Consumer groups: how partitions are spread over members without a wish. Pure; must not know how they are handed over.

Every frontend computes the same from the same: no order of arrival, no chance.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

DEFAULT_GROUP: Final = "$default"
"""The group of an owner that names none."""

GROUP_BYTES: Final = 255


def is_name(group: str) -> bool:
    """Tell whether a text may name a group: printable, without blanks, because lists of groups have blanks between."""
    return 0 < len(group.encode()) <= GROUP_BYTES and group.isprintable() and " " not in group


def spread(members: Iterable[str], holders: Mapping[int, str | None]) -> dict[int, str]:
    """Give each partition to a member: evenly, and with as few changes to who holds what as that takes.

    `holders` says of each partition whose it is now; None, or one who is no member, means that it is free. Members beyond
    the number of partitions get none (EX19).
    """
    known = set(members)
    held = Counter(holder for holder in holders.values() if holder in known)
    # Whoever holds the most keeps the most.
    ranked = sorted(known, key=lambda member: (-held[member], member))[: len(holders)]
    if not ranked:
        return {}
    least, over = divmod(len(holders), len(ranked))
    room = {member: least + (place < over) for place, member in enumerate(ranked)}
    spread_out: dict[int, str] = {}
    for partition, holder in sorted(holders.items()):
        if holder is not None and room.get(holder, 0):
            room[holder] -= 1
            spread_out[partition] = holder
    takers = (member for member in ranked for _ in range(room[member]))
    free = (partition for partition in sorted(holders) if partition not in spread_out)
    return spread_out | dict(zip(free, takers, strict=True))
