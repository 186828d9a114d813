"""One page of an ordered list (XEP-0059). Pure text rules; must not know what is listed."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from broker.model.frozen import frozen


@frozen
class Page:
    """At most `most` entries: those after a place, those before one (the last ones, when it is empty), or those from an index on.

    A place stays valid when its entry is gone: the list continues where the entry would be.
    """

    most: int
    after: str | None = None
    before: str | None = None
    index: int | None = None

    def first(self, places: Sequence[str]) -> int:
        """Return the index of its first entry among sorted places."""
        if self.before is not None:
            end = bisect_left(places, self.before) if self.before else len(places)
            return max(0, end - self.most)
        if self.after is not None:
            return bisect_right(places, self.after)
        return min(self.index or 0, len(places))

    def cut(self, places: Sequence[str]) -> Sequence[str]:
        """Return its entries of all sorted places."""
        first = self.first(places)
        end = first + self.most
        if self.before:
            end = min(end, bisect_left(places, self.before))
        return places[first:end]
