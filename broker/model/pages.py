"""A page of a list that has an order (XEP-0059): which entries it has. Pure text rules; must not know what is listed."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Page:
    """At most `most` entries: those after a place, those before one (of all, when it is empty), or those from a number on.

    A place outlives its entry: the list goes on where it would stand.
    """

    most: int
    after: str | None = None
    before: str | None = None
    index: int | None = None

    def first(self, places: Sequence[str]) -> int:
        """Give the number of its first entry among places in their order."""
        if self.before is not None:
            end = bisect_left(places, self.before) if self.before else len(places)
            return max(0, end - self.most)
        if self.after is not None:
            return bisect_right(places, self.after)
        return min(self.index or 0, len(places))

    def cut(self, places: Sequence[str]) -> Sequence[str]:
        """Give its entries of all places in their order."""
        first = self.first(places)
        end = first + self.most
        if self.before:
            end = min(end, bisect_left(places, self.before))
        return places[first:end]
