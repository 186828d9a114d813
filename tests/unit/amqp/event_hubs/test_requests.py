"""Requests and answers of `$cbs` and `$management`, read and written against proton."""

from typing import Any

import pytest
from proton import Array, Data, Message, int32, timestamp

from broker.model import offsets
from broker.model.names import Partition
from broker.model.problems import MalformedRequest
from broker.model.results import Replay
from frontends.amqp.auth.shared_keys import path
from frontends.amqp.event_hubs import management, numbers
from frontends.amqp.event_hubs.addresses import HubAddress, source, target
from frontends.amqp.protocol import types


def decoded(raw: bytes) -> Any:  # noqa: ANN401  (proton says that it has no properties)
    """Read a message as any client does."""
    message = Message()
    message.decode(raw)
    return message


def offset(position: str) -> str:
    """Write an offset."""
    return offsets.write_offset(Partition("n", "i", 2), position)


def test_request() -> None:
    """A request is texts; the answer repeats the id as it came."""
    asked = management.request(
        Message(
            body="a token",
            id="m1",
            reply_to="here",
            properties={"operation": "put-token", "expiration": timestamp(5), "n": 5},
        ).encode()
    )
    assert (asked.said, asked.value, asked.reply_to) == ({"operation": "put-token"}, "a token", "here")
    found = decoded(management.answer(asked, 202, "Accepted"))
    assert found.correlation_id == "m1" and found.body is None
    assert found.properties == {"status-code": int32(202), "status-description": "Accepted"}
    assert management.request(Message(body={}).encode()) == management.ManagementRequest()
    with pytest.raises(types.Malformed):
        management.request(b"no message")


def test_hub() -> None:
    """EX17: a hub has a name, a date and its partitions."""
    found = decoded(management.answer(management.ManagementRequest(), 200, "OK", management.hub("log", 5, 1_024))).body
    assert found["name"] == "log" and found["created_at"] == 5 and found["partition_count"] == 1_024
    names = found["partition_ids"]
    assert isinstance(names, Array) and names.type == Data.STRING
    assert list(names.elements) == [str(number) for number in range(1_024)]


@pytest.mark.parametrize(
    ("earliest", "latest", "expected"),
    [
        ("", "0-0", (0, -1, "-1", -62_135_596_800_000, True)),
        ("1700000000000-0", "1700000000007-3", "kept"),
        ("", "1700000000007-3", "gone"),
    ],
)
def test_partition(earliest: str, latest: str, expected: Any) -> None:  # noqa: ANN401  (of any type)
    """EX17: a partition's beginning and end, as numbers, offset and time; one without events any more goes on counting."""
    if isinstance(expected, str):
        last = numbers.number(offset(latest))
        first = numbers.number(offset(earliest)) if earliest else last
        expected = (first, last, offset(latest), 1_700_000_000_007, expected == "gone")
    replay = Replay(2, (), earliest and offset(earliest), offset(latest), offset(latest), gap=False, more=False)
    found = decoded(
        management.answer(management.ManagementRequest(), 200, "OK", management.partition("log", replay))
    ).body
    assert found["partition"] == "2"
    assert expected == (
        found["begin_sequence_number"],
        found["last_enqueued_sequence_number"],
        found["last_enqueued_offset"],
        found["last_enqueued_time_utc"],
        found["is_partition_empty"],
    )


def test_addresses() -> None:
    """E6: hubs by their names, which may have slashes, with a host or without; words in any case; `$Default` is ours."""
    assert path("amqps://127.0.0.1:5671/log/") == path("log") == "log"
    assert target("sb://host/a/b/partitions/7") == HubAddress("a/b/Partitions/7", "a/b", 7)
    assert target("a/b") == HubAddress("a/b", "a/b", None)
    assert source("a/b/consumergroups/$Default/Partitions/0") == HubAddress(
        "a/b/ConsumerGroups/$Default/Partitions/0", "a/b", 0, "$default"
    )
    assert source("log/ConsumerGroups/G/Partitions/1023").group == "G"
    for wrong in (
        None,
        "",
        "sb://host/",
        "x" * 1_024,
        "log/Partitions/1024",
        "log/Partitions/01",
        "log/Partitions/x",
    ):
        with pytest.raises(MalformedRequest):
            target(wrong)
    for wrong in ("log", "log/Partitions/0", "log/ConsumerGroups/g", "log/ConsumerGroups/a b/Partitions/0"):
        with pytest.raises(MalformedRequest):
            source(wrong)
