"""Options as typed at a shell."""

import pytest

from broker.model.nodes.options import OPTIONS
from frontends.commands import fields


def test_names() -> None:
    """Each option is known by its wire name, by its aliases and without the prefix; a value may hold anything."""
    for option in OPTIONS:
        for name in (option.name, *option.aliases):
            assert fields.find_option(name) == name
            short = name.rpartition("#")[2].rpartition("}")[2]
            assert fields.find_option(short) == option.name
    read = fields.read(["lock_seconds=30", "pubsub#title=a=b c", "max_items="])
    assert read == {"stanzaq#lock_seconds": ("30",), "pubsub#title": ("a=b c",), "pubsub#max_items": ("",)}
    repeated = fields.read(["fair_weights=gold=3", "stanzaq#fair_weights=a b=0.5"])
    assert repeated == {"stanzaq#fair_weights": ("gold=3", "a b=0.5")}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lock_secs=3"], "lock_secs is not an option of a node; did you mean lock_seconds?"),
        (["stanzaq#lock_secs=3"], "stanzaq#lock_secs is not an option of a node; did you mean lock_seconds?"),
        (["zzz=3"], "zzz is not an option of a node"),
        (["lock_seconds"], "lock_seconds: write it as key=value"),
        (["lock_seconds=3", "stanzaq#lock_seconds=4"], "stanzaq#lock_seconds is given twice"),
    ],
)
def test_wrong(words: list[str], said: str) -> None:
    """A wrong option is named."""
    with pytest.raises(fields.Unreadable) as fault:
        fields.read(words)
    assert str(fault.value) == said
