"""Clients of Event Hubs by Azure's SDK for Python. Knows how they connect; must not know what a test asks."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient, PartitionContext, _client_base
from azure.eventhub._consumer import EventHubConsumer
from azure.eventhub._pyamqp.utils import generate_sas_token

from tests.doors.amqp.served import AmqpFrontend
from tests.doors.frontend import ALICE, BOB
from tests.waiting import PATIENCE_SECONDS

KEY, BOBS_KEY = "alices-key-of-forty-characters-and-more!", "bobs-key-of-forty-characters-and-more!!!"
_LOOK_SECONDS = 0.005
"""How long the SDK waits for bytes each time, and so for anything else."""


class _Clock:
    """The time for the SDK, which sleeps ten times while it opens a link."""

    time = staticmethod(time.time)

    @staticmethod
    def sleep(seconds: float) -> None:
        """Sleep no longer than a look takes."""
        time.sleep(min(seconds, _LOOK_SECONDS))


vars(_client_base)["time"] = _Clock

KEYS = f"alice {ALICE} {KEY}\nbob-1 {BOB} {BOBS_KEY}\n"


def address(frontend: AmqpFrontend, hub: str, name: str = "alice", key: str = KEY) -> str:
    """Write a connection string."""
    said = f"SharedAccessKeyName={name};SharedAccessKey={key}"
    return f"Endpoint=sb://127.0.0.1:{frontend.port};{said};EntityPath={hub};UseDevelopmentEmulator=true"


def signed(path: str, seconds: float, key: str = KEY, name: str = "alice") -> str:
    """Sign a token that expires so soon, and return what a connection string has instead of a key."""
    token = generate_sas_token(  # type: ignore[no-untyped-call]
        f"sb://some.where/{path}", name, key, int(time.time() + seconds)
    )
    return f"SharedAccessSignature={token}"


@contextmanager
def sending(connection: str, **options: Any) -> Iterator[EventHubProducerClient]:  # noqa: ANN401  (the SDK's)
    """Connect a producer without retries."""
    client = EventHubProducerClient.from_connection_string(
        connection, retry_total=0, socket_timeout=_LOOK_SECONDS, **options
    )
    with client:
        yield client


def send(client: EventHubProducerClient, *bodies: str | bytes, **where: Any) -> None:  # noqa: ANN401  (the SDK's)
    """Send bodies as one batch."""
    batch = client.create_batch(**where)
    for body in bodies:
        batch.add(EventData(body))
    client.send_batch(batch)


def body(event: Any) -> str:  # noqa: ANN401  (what the SDK says of it may be none)
    """Return the content of an event as text."""
    return b"".join(event.body).decode(errors="replace")


class _Client(EventHubConsumerClient):
    """A client whose links do not ping: the threads for that take a second each to end."""

    def _create_consumer(self, *wanted: Any, **more: Any) -> EventHubConsumer:  # noqa: ANN401  (the SDK's)
        link: EventHubConsumer = super()._create_consumer(*wanted, **more)
        link._keep_alive = None
        return link


class Reader:
    """A consumer that receives until it is closed: events of the SDK with their partitions, and errors."""

    def __init__(self, connection: str, group: str = "$Default", tries: int = 0, **wanted: Any) -> None:  # noqa: ANN401  (the SDK's)
        """Begin."""
        self.events: list[tuple[str, Any]] = []
        self.errors: list[str] = []
        self._client = _Client.from_connection_string(
            connection,
            consumer_group=group,
            retry_total=tries,
            retry_backoff_factor=0.1,
            retry_mode="fixed",
            socket_timeout=_LOOK_SECONDS,
        )
        self._thread = threading.Thread(
            target=self._client.receive_batch, args=(self._arrived,), kwargs=self._kept(wanted)
        )
        self._thread.start()

    def _kept(self, wanted: dict[str, Any]) -> dict[str, Any]:
        return {"on_error": self._error, "starting_position": "-1", "max_wait_time": 0.05} | wanted

    def _arrived(self, context: PartitionContext, events: list[EventData]) -> None:
        self.events += [(context.partition_id, event) for event in events]

    def _error(self, _context: PartitionContext | None, error: Exception) -> None:
        self.errors.append(str(error))

    @property
    def bodies(self) -> list[str]:
        """Return the bodies received so far, in order."""
        return [body(event) for _, event in self.events]

    def of(self, partition: str) -> list[str]:
        """Return the events of one partition."""
        return [body(event) for number, event in self.events if number == partition]

    def until(self, done: Callable[["Reader"], bool]) -> None:
        """Wait until this is true."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not done(self):
            assert time.monotonic() < deadline, (self.bodies, self.errors)
            time.sleep(0.02)

    def close(self) -> None:
        """End."""
        self._client.close()
        self._thread.join()


@contextmanager
def reading(connection: str, **wanted: Any) -> Iterator[Reader]:  # noqa: ANN401  (the SDK's)
    """Receive for a while."""
    reader = Reader(connection, **wanted)
    try:
        yield reader
    finally:
        reader.close()
