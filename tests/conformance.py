"""Writes into docs/conformance.md which tests show each row: `python -m tests.conformance`.

A test cites a row by its name in its docstring or in a comment. Must not know what a row asks.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "conformance.md"

ROW: Final = re.compile(r"^\| ([A-Z]{1,2}\d+) \|(.*)\|[^|]*\|$", re.MULTILINE)
"""A row: its name, what it says, and the tests."""

CITED: Final = re.compile(r"(?<![\w#.-])(?:[QSRE]X?|PX?|D|H|X)\d{1,2}(?![\w-]|\.\w)")

_RANGE: Final = re.compile(r"\b([A-Z]{1,2})(\d+) to \1(\d+)\b")

_RINGS: Final = ("lua", "contract", "doors", "unit", "journeys", "faults")
"""The folders of tests, those first that show a rule of the queue closest to it."""

_SHOWN: Final = 2


def find_citations(text: str) -> set[str]:
    """Return the rows that a text cites, those of a range (`E5 to E12`) each."""
    text = re.sub(r"#\s*noqa:.*", "", text)
    ranges = {f"{kind}{n}" for kind, first, last in _RANGE.findall(text) for n in range(int(first), int(last) + 1)}
    return {*CITED.findall(text), *ranges}


def _sources(path: Path) -> Iterator[tuple[str, str]]:
    """Return the name and the source of each test of a file; without a name, the docstring of the file."""
    text = path.read_text()
    if not find_citations(text):
        # Most files cite nothing, and to parse one takes longer than to search it.
        return
    tree = ast.parse(text)
    yield "", ast.get_docstring(tree) or ""
    lines = text.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            yield node.name, "\n".join(lines[first - 1 : node.end_lineno])


@cache
def find_tests() -> Mapping[str, Sequence[str]]:
    """Return the tests that cite each row, in the order of the rings."""
    found = defaultdict[str, list[tuple[int, str]]](list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        place = path.relative_to(ROOT / "tests")
        ring = _RINGS.index(place.parts[0]) if place.parts[0] in _RINGS else len(_RINGS)
        for name, source in _sources(path):
            shown = f"`{place}{f'::{name}' if name else ''}`"
            for row in find_citations(source):
                # The docstring of a file says it of all its tests.
                found[row].append((ring * 2 + (not name), shown))
    return {row: [shown for _, shown in sorted(tests)] for row, tests in found.items()}


def write_tests(page: str) -> str:
    """Return the page with the tests of each row: of up to two folders, the first each."""
    tests = find_tests()

    def shown(row: str) -> str:
        of_folder: dict[str, str] = {}
        for each in tests.get(row, ()):
            of_folder.setdefault(each.partition("/")[0], each)
        return ", ".join(list(of_folder.values())[:_SHOWN])

    return ROW.sub(lambda row: f"| {row[1]} |{row[2]}| {shown(row[1])} |", page)


if __name__ == "__main__":
    PAGE.write_text(write_tests(PAGE.read_text()))
