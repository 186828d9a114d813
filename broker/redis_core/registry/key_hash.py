"""The hash that places a key: lookup3 by Bob Jenkins, as Azure Event Hubs folds it. Pure; must not know partitions.

SDKs of Event Hubs hash keys themselves when they buffer events. With the same hash a key has one partition, whoever hashes it.
"""

import struct
from functools import lru_cache
from typing import Final

_BLOCK: Final = 12
"""lookup3 reads three little-endian words of 32 bits at a time; zeros fill the last block."""

_START: Final = 0xDEADBEEF
_MASK: Final = 0xFFFFFFFF
_MIX: Final = (4, 6, 8, 16, 19, 4)
_FINISH: Final = (14, 11, 25, 16, 4, 14, 24)
"""How far each step of lookup3's `mix` and `final` rotates a word to the left."""


# Each publish with a key asks, mostly for keys that were asked for before. 4,096 keys are less than 1 MiB.
@lru_cache(maxsize=4_096)
def hash_key(key: str) -> int:
    """Compute the hash of a key, a signed number of 16 bits; that of the empty key is 0."""
    data = key.encode()
    blocks = -(-len(data) // _BLOCK)
    words = struct.unpack(f"<{3 * blocks}I", data.ljust(_BLOCK * blocks, b"\0"))
    a = b = c = (_START + len(data)) & _MASK
    for at in range(0, len(words), 3):
        # Every block is mixed into the next; the last one is finished below instead.
        if at:
            # The three words take turns, so that each step is the same.
            for bits in _MIX:
                a = (a - c & _MASK) ^ (c << bits & _MASK | c >> 32 - bits)
                a, b, c = b, c + b & _MASK, a
        a, b, c = a + words[at] & _MASK, b + words[at + 1] & _MASK, c + words[at + 2] & _MASK
    if words:
        for bits in _FINISH:
            c = (c ^ b) - (b << bits & _MASK | b >> 32 - bits) & _MASK
            a, b, c = b, c, a
    # lookup3's two results are b and c, which seven turns have left in a and b.
    folded = (a ^ b) & 0xFFFF
    return folded - 0x10000 if folded & 0x8000 else folded
