"""The words of Event Hubs, as they stand on the wire. Must not know what is done with them."""

from typing import Final

TOKENS: Final = "$cbs"
"""Where a connection says who it is (AMQP Claims-based Security)."""

MANAGEMENT: Final = "$management"

EPOCH: Final = "com.microsoft:epoch"
BATCH: Final = 0x80013700
"""The format of a message whose data sections are messages themselves."""

KEY: Final = "x-opt-partition-key"
OFFSET: Final = "x-opt-offset"
NUMBER: Final = "x-opt-sequence-number"
TIME: Final = "x-opt-enqueued-time"

SELECTOR_FILTER: Final = ("apache.org:selector-filter:string", 0x468C00000004)

HUB: Final = "com.microsoft:eventhub"
PARTITION: Final = "com.microsoft:partition"
"""What may be read at `$management`."""

TOKEN_TYPE: Final = "servicebus.windows.net:sastoken"  # noqa: S105  (a type)
