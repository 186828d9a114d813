"""Seeds of plays by chance: some for every run, and many more for `make soak`. Must not know what is played."""

from typing import Final

import pytest

_ALL: Final = 30


def seeds(usual: int) -> list[object]:
    """Return the seeds to parametrize a play with; the first `usual` ones run in `make test` too."""
    return [*range(usual), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(usual, _ALL))]
