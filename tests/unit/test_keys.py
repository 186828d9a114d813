"""The table of Redis keys and how their names are made."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import keys
from broker.model.names import Partition
from broker.store_format import FORMAT
from tests.operations import store_file, store_record

KINDS = {"hash", "stream", "zset", "set", "list"}
HOLDERS = {"partition", "node", "jid", "process", "service", "qos"}


def test_table() -> None:
    """Guarantee 6: every key has a type, a holder, a meaning and a bound, and is listed once."""
    assert len(keys.BY_NAME) == len(keys.TABLE)
    assert all(row.type in KINDS and row.holder in HOLDERS and row.meaning and row.bound for row in keys.TABLE)


def test_what_a_store_of_this_format_holds() -> None:
    """A store is read by the number of its format, so what is written stays as recorded: raise FORMAT and record the new one.

    `tests/contract/test_keys.py` compares the page's examples with what is written.
    """
    assert json.loads(store_file(FORMAT).read_text()) == store_record()


def test_names() -> None:
    """Keys are readable and name their holder."""
    assert keys.of_partition("log", Partition("my jobs", "ab12")) == "sq:{my%20jobs@ab12/0}:log"
    assert keys.of_node("options", "a{b}%") == "sq:{a%7Bb%7D%25}:options"
    assert keys.of_jid("created_nodes", "alice@x") == "sq:{jid:alice@x}:created_nodes"
    assert keys.of_service("due") == "sq:{service}:due"
    assert keys.of_qos("deliveries_begun") == "sq:{qos}:deliveries_begun"


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_name_is_safe(one: str, other: str) -> None:
    """X6: whatever a node is called, its keys have one hash tag of their own."""
    name = keys.of_node("options", one)
    tag = name[name.index("{") + 1 : name.index("}")]
    assert tag and name == f"sq:{{{tag}}}:options"
    assert keys.unescape(tag) == one
    assert (keys.of_node("options", other) == name) == (one == other)


def test_unknown_names() -> None:
    """A name that the table does not have is refused, for every holder: after a rename nobody reads old keys."""
    partition = Partition("jobs", "ab12")
    for asked in (
        lambda: keys.of_partition("parked", partition),
        lambda: keys.all_of_partition(("log", "parked"), partition),
        lambda: keys.of_node("parked", "jobs"),
        lambda: keys.of_jid("parked", "a@x"),
        lambda: keys.of_service("parked"),
        lambda: keys.of_qos("parked"),
    ):
        with pytest.raises(KeyError, match="parked"):
            asked()
