"""Wire names of the Event Stream Extensions. Must not know what they are used for."""

from typing import Final

CAPABILITY: Final = "AMQP_EVENT_STREAMS_V1_0"
"""The connection capability (EX18)."""

PARTITION: Final = "event-streams-partition"
PARTITIONS: Final = frozenset({PARTITION, "event-streams-target-partition"})
"""The names by which a producer may select a partition; the second is a later draft's (EX10)."""

GROUP: Final = "event-streams-consumer-group"
EPOCH: Final = "event-streams-epoch"
KEY: Final = "event-streams-group-key"
KEYS: Final = frozenset({KEY, "event-streams-key"})
"""The names of the group key in a producer's message (EX1)."""

OFFSET: Final = "event-streams-offset"
TIMESTAMP: Final = "event-streams-timestamp"
DELAY: Final = "x-opt-delivery-delay"
"""The annotation of a delay in ms, as in other brokers."""

AT: Final = "x-opt-scheduled-enqueue-time"
"""The annotation of the time of an item, as in Azure Service Bus."""

AFTER: Final = "x-opt-stanzaq-after"
REGARDLESS: Final = "x-opt-stanzaq-regardless"
KEEP: Final = "x-opt-stanzaq-keep"
"""Our own annotations: the items that an item waits for, whether however they end, and whether its own end is kept for others."""

CONFIRM: Final = "x-opt-stanzaq-confirm"
"""Our own annotation: how durable a message is to be before it is accepted."""

GAP: Final = "event-streams-gap"
"""Our own: older entries were removed by the retention (EX7)."""

ANNOTATIONS_FILTER: Final = ("amqp:event-streams-delivery-annotations-filter", 0x200)
SQL_FILTER: Final = ("amqp:event-streams-sql-filter", 0x201)

SELECTOR_FILTER: Final = ("apache.org:selector-filter:string", 0x0000_468C_0000_0004)
"""The filter on a queue's items, as in other brokers."""

ITEM: Final = "x-opt-stanzaq-item"
LOCK: Final = "x-opt-stanzaq-lock"
LOCKED_UNTIL: Final = "x-opt-stanzaq-locked-until"
"""Our own: an item's id, its lock token, and when the lock ends if it is not renewed."""

INFO: Final = "/$info"
"""The suffix to a node's name that addresses its runtime information (EX17)."""
