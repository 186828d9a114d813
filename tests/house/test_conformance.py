"""docs/conformance.md: every row that somebody cites is there, and its tests are those that cite it."""

import re
from pathlib import Path
from typing import Final

from tests.conformance import PAGE, ROOT, ROW, find_citations, find_tests, write_tests

_PROSE: Final = {"E30", "P19", "Q4", "Q36", "S17", "SX4", "X3"}
"""Rows that no test could show: what is not offered at all, and what documents say of themselves."""


def _rows() -> set[str]:
    return {found[1] for found in ROW.finditer(PAGE.read_text())}


def _cited(folder: str) -> set[str]:
    paths = [path for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".lua"}]
    return {row for path in paths for row in find_citations(path.read_text())}


def test_tests_are_up_to_date() -> None:
    """The last column is what the tests cite: `python -m tests.conformance` writes it."""
    page = PAGE.read_text()
    assert write_tests(page) == page


def test_each_row_has_a_test() -> None:
    """What a document asks is shown by a test, unless it asks nothing of a program."""
    assert _rows() - find_tests().keys() == _PROSE


def test_each_citation_has_a_row() -> None:
    """Nobody cites what cannot be looked up."""
    cited = set().union(*(_cited(folder) for folder in ("broker", "frontends", "lua", "stanzaq")), find_tests())
    assert cited - _rows() == set()


def test_guarantees_are_numbered() -> None:
    """README has each guarantee that is cited by a number."""
    text = (ROOT / "README.md").read_text().partition("## What is guaranteed")[2].partition("\n## ")[0]
    numbers = {int(each) for each in re.findall(r"^(\d+)\. \*\*", text, re.MULTILINE)}
    cited = set[int]()
    for folder in ("broker", "frontends", "lua", "stanzaq", "tests"):
        for path in Path(ROOT / folder).rglob("*"):
            if path.suffix in {".py", ".lua"}:
                cited |= {int(each) for each in re.findall(r"[Gg]uarantee (\d+)", path.read_text())}
    assert cited <= numbers == set(range(1, 11))
