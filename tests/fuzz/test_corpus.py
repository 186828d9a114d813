"""Every stanza that once caused trouble, or is of a kind of its own, through a whole frontend."""

import pytest

from tests.fuzz.conftest import Stage
from tests.fuzz.scene import STANZAS


@pytest.mark.parametrize("name", STANZAS)
def test_each_is_answered_as_it_should_be(name: str, stage: Stage) -> None:
    """Requests get one answer, other stanzas none, and the frontend continues (guarantee 7)."""
    stage.play(STANZAS[name])
