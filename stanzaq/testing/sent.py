"""What a program under test has sent, as values to compare. Must not know who has sent it, or how."""

from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

from stanzaq import payloads
from stanzaq.codec import Codec
from stanzaq.retry import Reject
from stanzaq.transport import traceparent
from stanzaq.transport.interface import TASK, Content, Outgoing


def read_payload(content: Content, nodes: Collection[str], codec: Codec) -> Any:  # noqa: ANN401
    """Return a payload as a handler without a type gets it; if the program cannot read it, its bytes."""
    try:
        return payloads.decode(codec.decode(content, nodes), Any)
    except Reject:
        return content.body


@dataclass(frozen=True, slots=True)
class Sent:
    """An item that was published, as `Publisher.publish` was asked: times in seconds, `headers` without those of a trace.

    `payload` is what a handler without a type gets: JSON as Python values. `task` is the name of a task; empty if it has none.
    `after` has a node and an id of each item that this one waits for, with '' for the own node.
    """

    node: str
    id: str
    payload: Any
    _: KW_ONLY
    task: str = ""
    key: str = ""
    delay: float = 0.0
    at: datetime | None = None
    priority: int | None = None
    ttl: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    after: tuple[tuple[str, str], ...] = ()
    regardless: bool = False
    keep: bool = False
    reply: bool = False

    @classmethod
    def read(cls, outgoing: Outgoing, codec: Codec) -> Self:
        """Read an item on its way."""
        _, headers = traceparent.split(outgoing.headers)
        hints = outgoing.hints
        return cls(
            outgoing.node,
            outgoing.item,
            read_payload(outgoing.content, (outgoing.node,), codec),
            task=headers.get(TASK, ""),
            key=hints.key,
            delay=hints.delay,
            at=None if hints.at is None else datetime.fromtimestamp(hints.at, UTC),
            priority=hints.priority,
            ttl=hints.ttl,
            headers={name: value for name, value in headers.items() if name != TASK},
            after=hints.after,
            regardless=hints.regardless,
            keep=hints.keep,
            reply=hints.reply,
        )
