"""Which tests one worker runs together."""

import json
from pathlib import Path

import pytest

from tests.order import DURATIONS, scope


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("tests/unit/test_order.py::test_scope[a::b-cluster]", "tests/unit/test_order.py"),
        ("tests/analytics/test_report.py::test_levels[jobs]", "analytics"),
        ("tests/helm/test_render.py::test_lint", "helm"),
        ("tests/contract/test_leases.py::test_it_ends[4-valkey]", "tests/contract/test_leases.py"),
        ("tests/contract/test_leases.py::test_it_ends[4-cluster]", "cluster"),
        ("tests/contract/test_users.py::test_sentinels[sentinels]", "sentinels"),
    ],
)
def test_scope(name: str, found: str) -> None:
    """A module is one scope, and so are tests that need the same slow servers."""
    assert scope(name) == found


def test_durations() -> None:
    """No durations are of removed modules; `make durations` measures again."""
    modules = {name for name in json.loads(DURATIONS.read_text()) if "/" in name}
    assert {name for name in modules if not (Path(__file__).parents[2] / name).is_file()} == set()
