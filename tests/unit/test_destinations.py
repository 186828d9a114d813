"""Wildcards over the tree of names with slashes (R12, RX4)."""

import pytest

from broker.model.nodes.destinations import is_wildcard, matches


@pytest.mark.parametrize(
    ("destination", "met", "not_met"),
    [
        ("uk/*", ["uk/books", "uk/a.b"], ["uk", "uk/books/new", "us/books", "uk.books"]),
        ("uk/*/new", ["uk/books/new"], ["uk/new", "uk/a/b/new", "uk/books/old"]),
        ("uk/**", ["uk/books", "uk/books/new"], ["uk", "us/books", "ukraine/books"]),
        ("**", ["uk", "uk/books"], []),
        ("*", ["uk"], ["uk/books"]),
        ("uk.*", ["uk.*"], ["uk.books"]),
        ("uk/b*", ["uk/b*"], ["uk/books"]),
        ("uk/*", ["uk/deadly"], ["uk/dead", "dead"]),
        ("uk/**", ["uk/dead/books"], ["uk/dead", "uk/books/dead"]),
        ("**", ["uk"], ["dead", "uk/dead"]),
        ("uk/*/dead", ["uk/books/dead"], ["uk/dead", "uk/books"]),
        ("*/dead", ["uk/dead"], ["dead", "uk/books/dead"]),
        ("uk/dead", ["uk/dead"], ["uk/books"]),
    ],
)
def test_meets(destination: str, met: list[str], not_met: list[str]) -> None:
    """A star is a whole step, two at the end are any number of them, and a dot is a dot; none stands for a last step `dead`."""
    assert is_wildcard(destination) == (met != [destination])
    assert [name for name in (*met, *not_met) if matches(destination, name)] == met
