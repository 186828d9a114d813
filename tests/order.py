"""A plugin of pytest: which tests one worker runs, one after another, and in which order; it must not know what they test.

The tests of a module, or of all that need the same dear servers, run in one worker, so that these start once. What takes longest
begins first, by `durations.json`, so that no worker is left alone with much at the end. `make durations` measures anew.
"""

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

DURATIONS: Final = Path(__file__).with_name("durations.json")
"""Seconds of a worker for each scope."""

NEW: Final = 10
"""Seconds assumed for a scope that nobody has measured."""

SOON: Final = ("tests/house/", "tests/lua/", "tests/unit/")
"""Fast tests, which run before all others."""

_DEAR: Final = re.compile(r"tests/(?:(analytics|helm)/|contract/.*(cluster|sentinels))")
"""Fixtures that take long: a Spark session, the chart rendered by every Helm, a cluster, sentinels."""


def scope(name: str) -> str:
    """Return the scope of a test by its name: the slow fixture that it needs, else its module."""
    dear = _DEAR.match(name)
    return dear[1] or dear[2] if dear else name.partition("::")[0]


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Hands out scopes."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


class _Measured:
    """Sums the times of tests, with their set-up."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[scope(report.nodeid)] += round(1_000 * report.duration)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus:
            return
        seconds = {name: round(taken / 1_000) for name, taken in sorted(self._seconds.items())}
        DURATIONS.write_text(json.dumps({name: taken for name, taken in seconds.items() if taken}, indent=0) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option to measure."""
    parser.addoption("--renew-durations", action="store_true", help="write how long each scope took")


def pytest_configure(config: pytest.Config) -> None:
    """Measure in the process that receives all results."""
    if config.getoption("--renew-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Measured())


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return two workers more than there are cores: tests also wait. On two cores one more leaves a tenth of the time idle."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling | None:  # noqa: ANN401  (it has no type)
    """Replace `--dist loadscope`."""
    return _Scheduling(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the longest scopes first; inside a scope the order stays."""
    seconds = json.loads(DURATIONS.read_text())
    items.sort(key=lambda item: (not item.nodeid.startswith(SOON), -seconds.get(scope(item.nodeid), NEW)))
