"""The bounds benchmark and Redis's slow log."""

import pytest

from bench.queue.bounds import longest_call


def test_longest_call() -> None:
    """The longest call of a function counts, whatever else took long."""
    entries = [
        {"command": b"SORT numbers", "duration": 5_000},
        {"command": b"FCALL stanzaq_0_publish 1 key", "duration": 300},
        {"command": b"FCALL_RO stanzaq_0_stats 1 key", "duration": 40},
    ]
    assert longest_call(entries) == 300


@pytest.mark.parametrize("command", [b"SORT numbers", b"EVALSHA 0123 1 key"])
def test_no_call(command: bytes) -> None:
    """A slow log without a call is a fault of the measurement: it proves no bound."""
    with pytest.raises(RuntimeError, match="of 1 entries of the slow log none is a call"):
        longest_call([{"command": command, "duration": 5_000}])
