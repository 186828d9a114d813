"""Every stanza that is known to have once been trouble, or is of a kind of its own, through a whole frontend."""

import pytest

from tests.fuzz.conftest import Stage
from tests.fuzz.scene import STANZAS


@pytest.mark.parametrize("name", STANZAS)
def test_each_is_answered_as_it_should_be(name: str, stage: Stage) -> None:
    """What is owed an answer gets one, what is not gets none, and the frontend goes on (guarantee 7)."""
    stage.play(STANZAS[name])
