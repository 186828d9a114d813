"""The programs in library.md, which tests run."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "library.md").read_text()


def program(name: str) -> str:
    """Return a program by its name."""
    (found,) = re.findall(rf"```python\n# {name}\.py\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def import_programs(monkeypatch: "pytest.MonkeyPatch", *names: str) -> ModuleType:
    """Import programs under their names, each of which may import those before, and return the last one."""
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        exec(program(name), vars(sys.modules[name]))  # noqa: S102
    return sys.modules[names[-1]]
