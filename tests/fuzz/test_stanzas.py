"""Stanzas by the thousand through a whole frontend: no input kills it, blocks the loop for long, or is answered twice."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.conftest import Stage
from tests.fuzz.mutations import streams

# The frontend lives from example to example, as it does from stanza to stanza.
_fuzzed = settings(suppress_health_check=list(HealthCheck), database=None)


@settings(_fuzzed, max_examples=80)
@given(streams)
def test_whatever_comes_is_answered_once(stage: Stage, data: bytes) -> None:
    """Each request has one answer, nothing else has any, and the next one is served."""
    assert stage.longest_turn(data) < 1


@pytest.mark.soak
@settings(_fuzzed, max_examples=20_000)
@given(st.lists(streams, min_size=1, max_size=3))
def test_whatever_comes_for_minutes(stage: Stage, data: list[bytes]) -> None:
    """The same for many more, and for several after one another."""
    for part in data:
        assert stage.longest_turn(part) < 1
