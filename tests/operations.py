"""The commands and examples of docs/operations.md, for tests that follow it to the letter. Must not know their purpose."""

import re
from pathlib import Path
from typing import Final, NamedTuple

import redis

from broker import keys

PAGE: Final = (Path(__file__).parent.parent / "docs" / "operations.md").read_text()

_USER: Final = re.compile(r"^ACL SETUSER (\S+) (.+?)(?: +#.*)?$", re.MULTILINE)
USERS: Final = {name: rules.split() for name, rules in _USER.findall(PAGE)}
"""The users of Redis that the page creates, and their permissions."""

WITH_SENTINELS: Final = ("+role",)
"""What the page adds for users of a Redis with sentinels."""

PASSWORD: Final = "PASSWORD"
"""The page's placeholder for each password."""


def make_user(url: str, name: str, *more: str) -> None:
    """Create a user of Redis as the page does; `more` is a further permission that it names."""
    with redis.Redis.from_url(url) as client:
        client.execute_command("ACL", "SETUSER", name, *USERS[name], *more)


def as_user(url: str, name: str) -> str:
    """Return the URL of a Redis for a user."""
    return url.replace("://", f"://{name}:{PASSWORD}@", 1)


class Step(NamedTuple):
    """A command of the runbook and its output: lines in which `…` is any text, with others possibly between them."""

    command: str
    says: tuple[str, ...]


def runbook(symptom: str) -> list[Step]:
    """Return the page's steps for a symptom."""
    entry = PAGE.split(f"\n### {symptom}\n")[1].split("\n### ")[0].split("\n## ")[0]
    block = "".join(re.findall(r"```console\n(.*?)```", entry, re.DOTALL))
    assert block, symptom
    steps = [step.splitlines() for step in re.split(r"^\$ ", block, flags=re.MULTILINE) if step]
    return [Step(command, tuple(says)) for command, *says in steps]


def told(line: str, said: str) -> bool:
    """Return whether a line of the page is in a command's output."""
    pattern = ".*".join(re.escape(part) for part in line.split("…"))
    return any(re.fullmatch(pattern, each) for each in said.splitlines())


EXAMPLES: Final = dict(re.findall(r"^\| `(sq:\{[^`]+)` \| (.+) \|$", PAGE, re.MULTILINE))
"""The page's example of each key, by the key's full name."""


_PART: Final = re.compile(
    r"(?P<person>\w+@example\.org(?:/\w+)?)|(?P<hexadecimal>(?:\b|(?<=_))(?:[0-9a-f]{32}|[0-9a-f]{24}|[0-9a-f]{12}|[0-9a-f]{8})\b)"
    r"|(?P<number>\d+)|(?P<left_out>…)|(?P<word>.)",
    re.DOTALL,
)
_LIKE: Final = {"person": r"[^ \0]+", "hexadecimal": "[0-9a-f]+", "number": r"\d+", "left_out": ".*"}


def shape(example: str) -> re.Pattern[str]:
    """Return a pattern of texts like an example: with other numbers, incarnations, nonces and people."""
    text = example.replace("`", "").replace("\\0", "\0").replace("\\n", "\n")
    parts = (_LIKE.get(str(part.lastgroup), re.escape(part[0])) for part in _PART.finditer(text))
    return re.compile("".join(parts), re.DOTALL)


def store_record() -> dict[str, object]:
    """Return what a store of this format holds: the type and holder of each key, and what its example looks like."""
    return {
        "keys": {row.name: [row.type, row.holder] for row in keys.TABLE},
        "looks": {name: shape(example).pattern for name, example in EXAMPLES.items()},
    }


def store_file(number: int) -> Path:
    """Return the record of a format."""
    return Path(__file__).parent / "golden" / "stores" / f"{number}.json"
