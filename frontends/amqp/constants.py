"""The words of the Event Stream Extensions, as they stand on the wire. Must not know what is done with them."""

from typing import Final

CAPABILITY: Final = "AMQP_EVENT_STREAMS_V1_0"
"""EX18."""

PARTITION: Final = "event-streams-partition"
PARTITIONS: Final = frozenset({PARTITION, "event-streams-target-partition"})
"""How a producer may name one; the second is a later draft's (EX10)."""

GROUP: Final = "event-streams-consumer-group"
EPOCH: Final = "event-streams-epoch"
KEY: Final = "event-streams-group-key"
KEYS: Final = frozenset({KEY, "event-streams-key"})
"""How a producer may name it (EX1)."""

OFFSET: Final = "event-streams-offset"
TIMESTAMP: Final = "event-streams-timestamp"
DELAY: Final = "x-opt-delivery-delay"
"""The annotation by which other brokers' producers ask for one, in ms."""

GAP: Final = "event-streams-gap"
"""Ours: what lay before went with the retention (EX7)."""

ANNOTATIONS_FILTER: Final = ("amqp:event-streams-delivery-annotations-filter", 0x200)
SQL_FILTER: Final = ("amqp:event-streams-sql-filter", 0x201)

SELECTOR_FILTER: Final = ("apache.org:selector-filter:string", 0x0000_468C_0000_0004)
"""What a worker takes of a queue, as other brokers have it."""

ITEM: Final = "x-opt-stanzaq-item"
LOCK: Final = "x-opt-stanzaq-lock"
LOCKED_UNTIL: Final = "x-opt-stanzaq-locked-until"
"""Ours: an item's id, the token of its lock, and when that would end if it were not renewed."""

INFO: Final = "/$info"
"""What follows a node's name where its runtime information is asked for (EX17)."""
