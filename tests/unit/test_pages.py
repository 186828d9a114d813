"""Pages of an ordered list: their contents, and that going through them finds everything once."""

from hypothesis import given
from hypothesis import strategies as st

from broker.model.pages import Page

PLACES = ["a", "b", "c", "d", "e"]


def test_pages() -> None:
    """XEP-0059 §2: forwards, backwards, the last one, by number, none at all, and after a removed item."""
    for page, first, cut in (
        (Page(2), 0, "ab"),
        (Page(2, after="b"), 2, "cd"),
        (Page(2, after="bb"), 2, "cd"),
        (Page(2, after="e"), 5, ""),
        (Page(2, before=""), 3, "de"),
        (Page(2, before="d"), 1, "bc"),
        (Page(3, before="b"), 0, "a"),
        (Page(2, before="a"), 0, ""),
        (Page(2, index=3), 3, "de"),
        (Page(2, index=10**9), 5, ""),
        (Page(0), 0, ""),
    ):
        assert (page.first(PLACES), "".join(page.cut(PLACES))) == (first, cut), page


@given(st.sets(st.text(min_size=1)), st.integers(1, 4))
def test_all_are_found(names: set[str], most: int) -> None:
    """Each page begins where the last has ended, in both directions."""
    places = sorted(names)
    forwards: list[str] = []
    backwards: list[str] = []
    page = Page(most).cut(places)
    while page:
        forwards += page
        page = Page(most, after=page[-1]).cut(places)
    page = Page(most, before="").cut(places)
    while page:
        backwards = [*page, *backwards]
        page = Page(most, before=page[0]).cut(places)
    assert forwards == backwards == places
