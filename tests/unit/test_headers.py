"""Headers of a publisher's item: which are allowed."""

from collections.abc import Iterable

import pytest

from broker.model.items import headers
from broker.model.problems import MalformedRequest, Problem

MANY = [(f"h{number}", "") for number in range(33)]


def test_as_they_are() -> None:
    """P14: any others are kept as they are, however they are written, up to 32; their bytes count."""
    said = {"Content-Language": "de", "x-é": "ä", "stanza": "", "amqp-x": "y"}
    assert headers.validate_headers(said.items()) == said
    assert headers.size({"x-é": "ä", "b": ""}) == 7
    assert len(headers.validate_headers(MANY[:32])) == 32


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([("", "x")], ""),
        ([("a", "x"), ("a", "x")], ""),
        ([("Stanzaq-element", "")], " Stanzaq-element "),
        ([("pubsub#x", "")], " pubsub#x "),
        *[([(name, "")], f" {name} ") for name in ("AMQP", "Collection", "SubID")],
        ([("stanzaq-" + "x" * 100, "")], f" stanzaq-{'x' * 72} "),
        (MANY, " 32 "),
    ],
)
def test_refused(said: Iterable[tuple[str, str]], why: str) -> None:
    """P14, H6: an invalid name, one twice or one of the service's own, and too many are refused by name."""
    with pytest.raises(MalformedRequest) as refused:
        headers.validate_headers(said)
    assert refused.value.problem is Problem.PAYLOAD_INVALID and refused.value.detail and why in refused.value.detail
