"""What the tests of faults share: one house for all, and stages with a randomness that the run's seed repeats."""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.faults.house import House
from tests.faults.stage import Stage

Play = Callable[[int], AbstractContextManager[Stage]]


@pytest.fixture(scope="session")
def house() -> Iterator[House]:
    """Give the servers."""
    with House.build() as house:
        yield house


@pytest.fixture
def play(house: House, request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Give the maker of a stage for a lock time in seconds; `--randomly-seed=…` of a failed run repeats its choices."""
    seed = f"{request.config.getoption('randomly_seed')}/{request.node.name}"
    print(f"seed: {seed}")  # noqa: T201  (shown when the test fails)
    chance = random.Random(seed)
    return lambda lock_seconds: Stage(house, chance, tmp_path, lock_seconds).played()
