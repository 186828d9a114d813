"""The blocks of the pages about XMPP servers, as tests run them. Must not know any server."""

import re
import textwrap
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"


def block(page: str, language: str) -> str:
    """Give the first block of a page in this language."""
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", (_DOCS / page).read_text(), re.DOTALL)
    return textwrap.dedent(found[0])


def commands(page: str, program: str) -> list[list[str]]:
    """Give the words of each command line of a page that calls this program as root."""
    lines: list[str] = re.findall(rf"^# {program} (.*)$", (_DOCS / page).read_text(), re.MULTILINE)
    return [line.split() for line in lines]


def replaced(text: str, *changes: tuple[str, str]) -> str:
    """Replace words of a page; each must be there, so that nothing of what the page says is left out unseen."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text
