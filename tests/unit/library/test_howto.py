"""The pages of docs/howto: their programs and tests do what is said of them, as a reader would save them."""

import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest

_PAGES = Path(__file__).parents[3] / "docs" / "howto"


@pytest.mark.parametrize("page", ["bullmq", "celery", "customers", "long-jobs"])
async def test_pages(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test of the page passes, on its own programs."""
    programs = re.findall(r"```python\n# (\w+)\.py\n(.*?)```", (_PAGES / f"{page}.md").read_text(), re.DOTALL)
    for name, program in programs:
        (tmp_path / f"{name}.py").write_text(program)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    tests = [importlib.import_module(name) for name, _ in programs if name.startswith("test_")]
    found = [test for each in tests for name, test in inspect.getmembers(each) if name.startswith("test_")]
    assert found
    for test in found:
        await test()
