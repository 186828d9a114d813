"""Wire names of Event Hubs. Must not know what they are used for."""

from typing import Final

TOKENS: Final = "$cbs"
"""The node where a connection puts tokens (AMQP Claims-based Security)."""

MANAGEMENT: Final = "$management"

EPOCH: Final = "com.microsoft:epoch"
BATCH: Final = 0x80013700
"""The format of a message whose data sections are messages."""

KEY: Final = "x-opt-partition-key"
OFFSET: Final = "x-opt-offset"
NUMBER: Final = "x-opt-sequence-number"
TIME: Final = "x-opt-enqueued-time"

SELECTOR_FILTER: Final = ("apache.org:selector-filter:string", 0x468C00000004)

HUB: Final = "com.microsoft:eventhub"
PARTITION: Final = "com.microsoft:partition"
"""The types that `$management` answers for."""

TOKEN_TYPE: Final = "servicebus.windows.net:sastoken"  # noqa: S105  (a type)
JWT_TYPE: Final = "jwt"
