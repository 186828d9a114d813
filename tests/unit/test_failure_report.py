"""How a failed test is repeated."""

from types import SimpleNamespace
from typing import Any

from _pytest.config import get_config

from tests.failure_report import _again


def test_without_randomly() -> None:
    """A run without pytest-randomly, as mutmut's, is repeated without it; before, the first failure ended such a run."""
    item: Any = SimpleNamespace(nodeid="tests/test_it.py::test_it", config=get_config())
    assert _again(item).endswith(".venv/bin/pytest 'tests/test_it.py::test_it' -n 0 -p no:randomly")
