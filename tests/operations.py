"""What docs/operations.md prints, for tests that follow it to the letter. Must not know what any of it is good for."""

import re
from pathlib import Path
from typing import Final, NamedTuple

import redis

PAGE: Final = (Path(__file__).parent.parent / "docs" / "operations.md").read_text()

_USER: Final = re.compile(r"^ACL SETUSER (\S+) (.+?)(?: +#.*)?$", re.MULTILINE)
USERS: Final = {name: rules.split() for name, rules in _USER.findall(PAGE)}
"""The users of Redis that the page makes, and what it gives them."""

PASSWORD: Final = "PASSWORD"
"""What the page writes in the place of each password."""


def make_user(url: str, name: str, *more: str) -> None:
    """Make a user of Redis as the page does; `more` is what it says that some need besides."""
    with redis.Redis.from_url(url) as client:
        client.execute_command("ACL", "SETUSER", name, *USERS[name], *more)


def as_user(url: str, name: str) -> str:
    """Give the URL of a Redis for a user."""
    return url.replace("://", f"://{name}:{PASSWORD}@", 1)


class Step(NamedTuple):
    """A command of the runbook and what it says: lines in which `…` is any text, others may stand between them."""

    command: str
    says: tuple[str, ...]


def runbook(symptom: str) -> list[Step]:
    """Give the steps that the page has under a symptom."""
    entry = PAGE.split(f"\n### {symptom}\n")[1].split("\n### ")[0].split("\n## ")[0]
    block = "".join(re.findall(r"```console\n(.*?)```", entry, re.DOTALL))
    assert block, symptom
    steps = [step.splitlines() for step in re.split(r"^\$ ", block, flags=re.MULTILINE) if step]
    return [Step(command, tuple(says)) for command, *says in steps]


def told(line: str, said: str) -> bool:
    """Tell whether a line of the page is among those that a command has said."""
    pattern = ".*".join(re.escape(part) for part in line.split("…"))
    return any(re.fullmatch(pattern, each) for each in said.splitlines())


EXAMPLES: Final = dict(re.findall(r"^\| `(sq:\{[^`]+)` \| (.+) \|$", PAGE, re.MULTILINE))
"""What the page shows of each key that it has an example of, by the key's full name."""


_PART: Final = re.compile(
    r"(?P<person>\w+@example\.org(?:/\w+)?)|(?P<hexadecimal>(?:\b|(?<=_))(?:[0-9a-f]{32}|[0-9a-f]{24}|[0-9a-f]{12}|[0-9a-f]{8})\b)"
    r"|(?P<number>\d+)|(?P<left_out>…)|(?P<word>.)",
    re.DOTALL,
)
_LIKE: Final = {"person": r"[^ \0]+", "hexadecimal": "[0-9a-f]+", "number": r"\d+", "left_out": ".*"}


def shape(example: str) -> re.Pattern[str]:
    """Give what everything looks like that is as an example: other numbers, names of incarnations, nonces and people."""
    text = example.replace("`", "").replace("\\0", "\0")
    parts = (_LIKE.get(str(part.lastgroup), re.escape(part[0])) for part in _PART.finditer(text))
    return re.compile("".join(parts), re.DOTALL)
