"""The hash of keys, against what its author and Event Hubs publish, and against Azure's SDK for Python."""

import pytest
from azure.eventhub._buffered_producer._partition_resolver import PartitionResolver, generate_hash_code
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.redis_core.registry.key_hash import hash_key
from broker.redis_core.registry.partitioner import choose_by_hash

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ascii_texts = st.text(st.characters(max_codepoint=127), max_size=40)


def _sdk_partition(key: str, count: int) -> int:
    resolver = PartitionResolver(list(range(count)))  # type: ignore[no-untyped-call]
    return int(resolver.get_partition_id_by_partition_key(key))  # type: ignore[no-untyped-call]


def _sdk_hash(key: str) -> int:
    """Ask the SDK for the hash of a key's bytes in UTF-8: of a text, it would take the code points for bytes."""
    return int(generate_hash_code(key.encode().decode("latin-1")))  # type: ignore[no-untyped-call]


def test_published() -> None:
    """The two results that lookup3.c names for this text, 17770551 and ce7226e6, are folded."""
    assert hash_key("Four score and seven years ago") == 0x0551 ^ 0x26E6
    assert hash_key("") == 0


@pytest.mark.parametrize(
    ("key", "count", "partition"),
    [
        ("alphabet", 3, 0),
        ("alphabet", 11, 4),
        ("TheBestParitionEver", 4, 2),
        ("TheWorstParitionEver", 15, 1),
    ],
)
def test_service(key: str, count: int, partition: int) -> None:
    """E14: a key is where the service of Event Hubs puts it, according to the tests of the SDK for JavaScript."""
    assert choose_by_hash(key, count) == partition


@settings(max_examples=400)
@given(texts)
@example("ü" * 6)
@example("ü" * 12)
def test_hash(key: str) -> None:
    """The hash is the SDK's, of a key's bytes in UTF-8."""
    assert hash_key(key) == _sdk_hash(key)


@settings(max_examples=400)
@given(ascii_texts, st.integers(1, 32))
def test_partition(key: str, count: int) -> None:
    """E14: a key in ASCII has the SDK's partition; if its hash is negative, the SDK for Python counts from the other end."""
    chosen = choose_by_hash(key, count)
    assert _sdk_partition(key, count) == (chosen if hash_key(key) >= 0 else -chosen % count)
