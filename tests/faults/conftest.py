"""Shared by the tests of faults: servers, and stages whose random choices the run's seed repeats."""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.faults.house import House, Kind
from tests.faults.player import RATE
from tests.faults.stage import Stage

Play = Callable[..., AbstractContextManager[Stage]]


@pytest.fixture(scope="session")
def house_for(request: pytest.FixtureRequest) -> Iterator[Callable[[Kind], House]]:
    """Return the servers: the same for all tests of a kind, but new ones after a failed test."""
    with ExitStack() as stack:
        built: list[House] = []

        def give(kind: Kind) -> House:
            if not built or built[-1].ruined or built[-1].kind is not kind:
                stack.close()
                built.append(stack.enter_context(House.build(kind, lambda: request.getfixturevalue("ejabberd"))))
            return built[-1]

        yield give


@pytest.fixture
def play(house_for: Callable[[Kind], House], request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Return a function that makes a stage for a lock time in seconds.

    `--randomly-seed=…` of a failed run repeats its choices.
    """
    seed = f"{request.config.getoption('randomly_seed')}/{request.node.name}"
    print(f"seed: {seed}")  # noqa: T201  (shown when the test fails)
    chance = random.Random(seed)
    rate = 2 * RATE if request.node.get_closest_marker("soak") else RATE

    @contextmanager
    def played(lock_seconds: int, kind: Kind = Kind.ONE, leaves: int = 0) -> Iterator[Stage]:
        house = house_for(kind)
        try:
            with Stage(house, chance, tmp_path, lock_seconds, leaves, rate).played() as stage:
                yield stage
        except BaseException:
            house.ruined = True
            raise

    return played
