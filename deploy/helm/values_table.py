"""Writes the table of values into the chart's README, from the comments in values.yaml. Must not know what a value means.

The comment above a value is its row. An entry without a comment is a group whose members have rows.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

CHART: Final = Path(__file__).with_name("stanzaq")
_HEAD: Final = "| value | default | meaning |\n|---|---|---|\n"
_KEY: Final = re.compile(r"( *)([A-Za-z_]+):")


def rows(text: str) -> Iterator[tuple[str, object, str]]:
    """Return path, default and meaning of each value with a comment."""
    defaults = yaml.safe_load(text)
    path: list[str] = []
    meaning = ""
    for line in text.splitlines():
        key = _KEY.match(line)
        if line.lstrip().startswith("# "):
            meaning = line.lstrip()[2:]
        elif key:
            depth = len(key[1]) // 2
            path[depth:] = [key[2]]
            if meaning:
                value = defaults
                for name in path:
                    value = value[name]
                yield ".".join(path), value, meaning
            meaning = ""
        else:
            meaning = ""


def table(text: str) -> str:
    """Return the table for a values.yaml."""
    return _HEAD + "".join(
        f"| `{path}` | {'' if value in (None, '', {}, []) else f'`{json.dumps(value)}`'} | {meaning} |\n"
        for path, value, meaning in rows(text)
    )


def filled(readme: str, values: str) -> str:
    """Return the README with its table replaced by the table of these values."""
    before, _, rest = readme.partition(_HEAD)
    after = re.sub(r"\A(\|.*\n)*", "", rest)
    return before + table(values) + after


if __name__ == "__main__":
    page = CHART / "README.md"
    page.write_text(filled(page.read_text(), (CHART / "values.yaml").read_text()))
