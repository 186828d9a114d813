"""Configuration of nodes: one table for forms and stored records."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.commands import Purge
from broker.model.names import Jid
from broker.model.nodes.fields import Group, Option
from broker.model.nodes.nodes import (
    Affiliation,
    NodeRecord,
    change_config,
    find_unmet,
    form_values,
    from_stored,
    to_stored,
)
from broker.model.nodes.options import (
    FORCED,
    MAX_ITEMS,
    OPTIONS,
    AccessModel,
    Dedupe,
    Fair,
    NodeConfig,
    PublishModel,
    WhenFull,
)
from broker.model.problems import MalformedRequest, Problem
from broker.model.roles import Roles, Said

BAD_RATES = (
    "0/s",
    "0",
    "abc",
    "10",
    "1000000000000/s",
    "1000001/h",
    "-1/s",
    "1.5/s",
    "1/d",
    " 1/s",
    "1/s\n",
    "٣/s",
    "9" * 1_000_000,
)

BAD_WEIGHTS = (
    "a",
    "=1",
    "a=",
    "a=0",
    "a=-1",
    "a=0.001",
    "a=100.001",
    "a=nan",
    "a=1e1",
    "a=٣",
    "a=1\na=2",
    "\n".join(f"{number}=2" for number in range(1_001)),
    f"{'a' * 65_536}=1",
)

configs = st.builds(
    NodeConfig,
    queueing=st.just(value=True),
    title=st.text(max_size=50),
    description=st.text(max_size=50),
    notify_delete=st.booleans(),
    notify_config=st.booleans(),
    lock_seconds=st.integers(1, 43_200),
    max_deliveries=st.integers(0, 1_000),
    retry_delay=st.integers(0, 604_800_000).map(lambda ms: ms / 1000),
    retry_backoff=st.integers(1_000, 100_000).map(lambda part: part / 1000),
    retry_limit=st.integers(0, 604_800_000).map(lambda ms: ms / 1000),
    retry_jitter=st.integers(0, 1_000).map(lambda part: part / 1000),
    rate=st.sampled_from(["", "1/h", "5000/m", "1000000/s"]),
    rate_burst=st.integers(0, 1_000_000),
    max_in_flight=st.integers(0, 1_000_000),
    rate_by_key=st.sampled_from(["", "7/m"]),
    max_in_flight_by_key=st.integers(0, 1_000_000),
    fair=st.sampled_from(Fair),
    fair_weights=st.sampled_from(["", "a=3", "a=0.01\nb = c=99.999"]),
    journal=st.sampled_from(["", "key", "publisher key"]),
    dead_letter_node=st.sampled_from([None, "", "n/dead", "elsewhere"]),
    dedupe=st.sampled_from(Dedupe),
    dedupe_seconds=st.integers(1, 604_800),
    max_items=st.integers(1, MAX_ITEMS),
    node_full=st.sampled_from(WhenFull),
    access_model=st.sampled_from(AccessModel),
    publish_model=st.sampled_from(PublishModel),
    max_payload_bytes=st.integers(1, 262_144),
    partitions=st.integers(1, 1_024),
    ordered=st.booleans(),
)


@given(configs)
def test_stored_and_restored(config: NodeConfig) -> None:
    """Stored values are read back; only those that differ from the default are stored."""
    assert from_stored(to_stored(config)) == config
    assert to_stored(NodeConfig()) == {}


@given(configs)
def test_a_form_sent_back_changes_nothing(config: NodeConfig) -> None:
    """P23: every field is shown with its present value, and submitting the form as shown is no change."""
    again = change_config(config, {name: (value,) for name, value in form_values("n", config).items()})
    assert form_values("n", again) == form_values("n", config)


def test_fields_of_a_newer_version_are_passed_over() -> None:
    """A rolling upgrade: old frontends read new records."""
    assert from_stored({"stanzaq#of-the-future": "1", "stanzaq#lock_seconds": "5"}) == NodeConfig(lock_seconds=5)


@pytest.mark.parametrize(
    ("name", "values", "problem"),
    [
        ("pubsub#access_model", ("roster",), Problem.ACCESS_MODEL_UNSUPPORTED),
        ("stanzaq#lock_seconds", ("0",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#lock_seconds", ("9" * 1_000_000,), Problem.NOT_ACCEPTABLE),
        ("stanzaq#lock_seconds", ("٣",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#lock_seconds", ("1", "2"), Problem.NOT_ACCEPTABLE),
        ("stanzaq#lock_seconds", (), Problem.NOT_ACCEPTABLE),
        ("stanzaq#dedupe", ("never",), Problem.NOT_ACCEPTABLE),
        ("pubsub#title", ("x" * 2_000,), Problem.NOT_ACCEPTABLE),
        ("pubsub#nothing", ("1",), Problem.NOT_ACCEPTABLE),
        ("pubsub#deliver_payloads", ("0",), Problem.NOT_ACCEPTABLE),
        ("pubsub#deliver_payloads", (), Problem.NOT_ACCEPTABLE),
        ("pubsub#queueing", ("no",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#retention_items", ("-1",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#retry_delay", ("-1",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#retry_delay", ("604800.001",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#retry_delay", ("0.0001",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#retry_delay", ("1" * 1_000_000,), Problem.NOT_ACCEPTABLE),
        ("stanzaq#retry_delay", ("5s",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#retry_delay", ("٣",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#retry_delay", ("5\n",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#retry_backoff", ("0.999",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#retry_backoff", ("nan",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#retry_limit", ("inf",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#retry_jitter", ("1.001",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#retry_jitter", ("1e-3",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#rate_by_key", ("0/s",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#max_in_flight_by_key", ("1.5",), Problem.NOT_ACCEPTABLE),
        *(("stanzaq#rate", (bad,), Problem.NOT_ACCEPTABLE) for bad in BAD_RATES),
        ("stanzaq#max_in_flight", ("-1",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#max_in_flight", ("1000001",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#fair", ("keys",), Problem.NOT_ACCEPTABLE),
        *(
            ("stanzaq#journal", (bad,), Problem.NOT_ACCEPTABLE)
            for bad in ("keys", "publisher,key", "key\n", "9" * 10**6)
        ),
        *(("stanzaq#fair_weights", (bad,), Problem.NOT_ACCEPTABLE) for bad in BAD_WEIGHTS),
        ("stanzaq#rate_burst", ("all",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#retention_seconds", ("1e3",), Problem.NOT_ACCEPTABLE),
        ("stanzaq#retention_bytes", ("9" * 19,), Problem.NOT_ACCEPTABLE),
    ],
)
def test_refused(name: str, values: tuple[str, ...], problem: Problem) -> None:
    """P5, P23, PX3, PX5, QX13: options that a queue cannot have are refused with the field's name."""
    with pytest.raises(MalformedRequest) as refused:
        change_config(NodeConfig(), {name: values})
    assert refused.value.problem is problem and (name.split("#")[1] in str(refused.value) or "queueing" in name)


def test_decimals() -> None:
    """stanzaq#retry_delay: a rest may have a fraction of a second; a refusal names the bounds."""
    given = {"stanzaq#retry_delay": ("0.5",), "stanzaq#retry_backoff": ("2.0",), "stanzaq#retry_jitter": ("1",)}
    config = change_config(NodeConfig(), given)
    assert config == NodeConfig(retry_delay=0.5, retry_backoff=2.0, retry_jitter=1.0)
    assert to_stored(config) == {
        "stanzaq#retry_delay": "0.5",
        "stanzaq#retry_backoff": "2",
        "stanzaq#retry_jitter": "1",
    }
    with pytest.raises(MalformedRequest) as refused:
        change_config(NodeConfig(), {"stanzaq#retry_backoff": ("0.5",)})
    assert refused.value.detail == "stanzaq#retry_backoff must be a number from 1 to 100 with at most three decimals"


@pytest.mark.parametrize(
    ("config", "limits"),
    [
        (NodeConfig(rate_burst=5), ""),
        (NodeConfig(max_in_flight=7), "7 0 0 0"),
        (NodeConfig(rate="100/s"), "0 100 1000 0"),
        (NodeConfig(rate="5000/m"), "0 5000 60000 0"),
        (NodeConfig(rate="1/h"), "0 1 3600000 0"),
        (NodeConfig(rate="1/h", rate_burst=20, max_in_flight=3), "3 1 3600000 20"),
        (NodeConfig(rate_by_key="1/s", max_in_flight_by_key=3), ""),
    ],
)
def test_limits(config: NodeConfig, limits: str) -> None:
    """stanzaq#rate: scripts read items, ms and burst, where 0 is the usual one."""
    assert config.limits == limits
    by_key = NodeConfig(rate_by_key=config.rate, max_in_flight_by_key=config.max_in_flight)
    assert config.rate_burst or by_key.limits_by_key == limits


def test_weights() -> None:
    """stanzaq#fair_weights: a key may contain any character but a line end; without turns scripts read none."""
    given = {"stanzaq#fair_weights": ("a=3.0", "b = c=0.5", ""), "stanzaq#fair": ("key",)}
    config = change_config(NodeConfig(), given)
    assert (config.fair_tenants, config.weights) == ("key", (("a", "3"), ("b = c", "0.5")))
    assert (
        change_config(NodeConfig(), {"stanzaq#fair_weights": ("a=3\nb = c=0.5",), "stanzaq#fair": ("key",)}) == config
    )
    off = change_config(config, {"stanzaq#fair": ("none",)})
    assert (off.fair_tenants, off.weights, off.fair_weights) == ("", (), config.fair_weights)


def test_words() -> None:
    """stanzaq#journal: words in any order, each once."""
    assert change_config(NodeConfig(), {"stanzaq#journal": (" key  publisher key",)}) == NodeConfig(
        journal="publisher key"
    )


def test_accepted() -> None:
    """P23, PX2: forced fields at their value, both spellings of node-full, `max`, and what changes nothing."""
    fields = {name: (value,) for name, value in FORCED.items()}
    fields |= {"pubsub#notify_retract": ("0",), "pubsub#max_items": ("max",)}
    fields |= {"pubsub#publish_full_node": ("retract-oldest",), "pubsub#deliver_payloads": ("true",)}
    assert change_config(NodeConfig(), fields) == NodeConfig(node_full=WhenFull.RETRACT_OLDEST, notify_retract=False)


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.choices], ids=lambda option: option.name)
def test_a_refusal_names_the_choices(option: Option) -> None:
    """P23: a wrong choice is refused with the possible ones."""
    with pytest.raises(MalformedRequest) as refused:
        change_config(NodeConfig(), {option.name: ("none of them",)})
    assert option.name in refused.value.detail and ", ".join(option.choices) in refused.value.detail


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
@pytest.mark.parametrize("values", [("\0" * 5_000,), ("-1" + "0" * 5_000,), ("a", "b")])
def test_a_refusal_names_its_field(option: Option, values: tuple[str, ...]) -> None:
    """P23: a value out of range is refused with the field's name."""
    for name in (option.name, *option.aliases):
        with pytest.raises(MalformedRequest) as refused:
            change_config(NodeConfig(), {name: values})
        assert option.name in refused.value.detail or name in refused.value.detail


@given(configs)
def test_preconditions(config: NodeConfig) -> None:
    """P18: a node meets its own shown values."""
    record = NodeRecord("n", "i", 1, config)
    assert find_unmet(record, {name: (value,) for name, value in form_values("n", config).items()}) is None
    assert find_unmet(record, {name: (value,) for name, value in FORCED.items()}) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pubsub#access_model", "whitelist"),
        ("stanzaq#partitions", "1"),
        ("stanzaq#dead_letter_node", ""),
        ("pubsub#persist_items", "0"),
        ("pubsub#queueing", "false"),
    ],
)
def test_unmet_preconditions(name: str, value: str) -> None:
    """P18: an unmet precondition is named."""
    record = NodeRecord("n", "i", 1, NodeConfig(partitions=2))
    assert find_unmet(record, {"stanzaq#ordered": ("0",), "pubsub#deliver_payloads": ("1",), name: (value,)}) == name


@pytest.mark.parametrize(
    ("name", "values"),
    [("pubsub#nothing", ("1",)), ("pubsub#access_model", ("roster",)), ("stanzaq#lock_seconds", ("30", "30"))],
)
def test_preconditions_that_nothing_meets(name: str, values: tuple[str, ...]) -> None:
    """P18: an unknown field is refused, and so is an impossible value."""
    with pytest.raises(MalformedRequest, match=name):
        find_unmet(NodeRecord("n", "i", 1, NodeConfig()), {name: values})


def test_affiliations() -> None:
    """P2: a JID without an affiliation gets none; an administrator owns every node, and nothing else of its record changes."""
    alice, bob = Jid("alice@example.org"), Jid("bob@example.org")
    record = NodeRecord("n", "i", 1, NodeConfig(), {alice: Affiliation.MEMBER, bob: Affiliation.OUTCAST})
    assert (record.affiliation(alice), record.affiliation(Jid("x@y"))) == (Affiliation.MEMBER, Affiliation.NONE)
    given = record.add_roles(Roles(frozenset({bob}), {}, {}))
    assert given.affiliations == {alice: Affiliation.MEMBER, bob: Affiliation.OWNER}
    assert (given.name, given.config, record.add_roles(Roles(frozenset(), {}, {}))) == ("n", NodeConfig(), record)


@pytest.mark.parametrize(
    ("groups", "affiliation"),
    [
        ("", "publish-only"),
        ("unknown", "publish-only"),
        ("members", "member"),
        ("members publishers", "publisher"),
        ("members bots", "publisher"),
        ("owners members", "owner"),
        ("owners members barred", "outcast"),
    ],
)
def test_affiliations_of_groups(groups: str, affiliation: str) -> None:
    """An account's own affiliation counts, else that of its groups, where `outcast` bars, else that of its domain."""
    own, other = Jid("alice@example.org"), Jid("bob@example.org")
    rights = {
        "members": "member",
        "publishers": "publisher",
        "bots": "publish-only",
        "owners": "owner",
        "barred": "outcast",
    }
    named = {Jid(f"group:{name}"): Affiliation(word) for name, word in rights.items()}
    named |= {Jid("example.org"): Affiliation.PUBLISH_ONLY, own: Affiliation.MEMBER}
    roles = Roles(frozenset(), {}, {})
    for jid in (own, other):
        roles.note(jid, Said(None, 0, math.inf, tuple(Jid(f"group:{name}") for name in groups.split())))
    record = NodeRecord("n", "i", 1, NodeConfig(), named).add_roles(roles)
    assert record.affiliation_of(Purge("n", Jid(f"{other}/x"))) is Affiliation(affiliation)
    assert record.affiliation_of(Purge("n", own)) is Affiliation.MEMBER
    # Only of the sender of a command.
    assert record.affiliation(other) is Affiliation.PUBLISH_ONLY


def test_owners_in_common() -> None:
    """Nodes share an owner as an account, by its domain or as a group; a group's name is no account of a domain."""

    def owned(name: str) -> NodeRecord:
        return NodeRecord("n", "i", 1, NodeConfig(), {Jid(name): Affiliation.OWNER})

    assert owned("a@x").shares_owner(owned("x")) and owned("x").shares_owner(owned("a@x"))
    assert owned("group:a@x").shares_owner(owned("group:a@x"))
    assert not owned("group:a@x").shares_owner(owned("x")) and not owned("x").shares_owner(owned("group:a@x"))


def test_a_log_keeps_what_it_is_told() -> None:
    """XEP-0060 §7.1.2: a log without any retention keeps `max_items`, a queue nothing; set options count for both."""
    assert NodeConfig(max_items=7).keep_items == 0
    assert NodeConfig(max_items=7, queueing=False).keep_items == 7
    assert NodeConfig(max_items=7, queueing=False, retention_seconds=60).keep_items == 0
    assert NodeConfig(max_items=7, queueing=False, retention_items=3).keep_items == 3
    assert NodeConfig(queueing=False).dead_letters_of("n") is None


def test_dead_letters() -> None:
    """Issue 4: NODE/dead unless another is named; none with an empty name or without a limit of deliveries."""
    assert NodeConfig().dead_letters_of("n") == "n/dead"
    assert NodeConfig(dead_letter_node="x").dead_letters_of("n") == "x"
    assert NodeConfig(dead_letter_node="").dead_letters_of("n") is None
    assert NodeConfig(max_deliveries=0).dead_letters_of("n") == "n/dead", "a worker may still send an item there"


@given(st.text(min_size=1, max_size=400).filter(lambda name: len(name.encode()) <= 1_023), st.integers(1, 1_023))
def test_dead_letters_of_long_names(name: str, size: int) -> None:
    """P33: however long a name is, its dead letters have one, which no other node's have."""
    node = (name * 1_023).encode()[:size].decode(errors="ignore") or "n"
    dead = NodeConfig().dead_letters_of(node)
    assert dead is not None and dead.endswith("/dead") and len(dead.encode()) <= 1_023
    if len(node.encode()) <= 1_018:
        assert dead == f"{node}/dead"
    else:
        assert dead != NodeConfig().dead_letters_of(node[:-1] + ("y" if node.endswith("x") else "x"))


def test_dead_letters_of_the_longest_name() -> None:
    """The name must not change: existing dead letters would not be found."""
    dead = NodeConfig().dead_letters_of("é" + "n" * 1_021)
    assert dead == "é" + "n" * 999 + "~5de0cd8e0e86d6e1/dead"


@pytest.mark.parametrize(("groups", "admitted"), [("", {"a", "b"}), (" \n", {"a", "b"}), ("a c", {"a"})])
def test_groups(groups: str, admitted: set[str]) -> None:
    """E26: a node without a list of groups takes any."""
    assert {group for group in ("a", "b") if NodeConfig(groups=groups).admits(group)} == admitted


def test_options_are_told() -> None:
    """Every option has a group and a label with its unit, and choices exactly where it is a list."""
    assert all(option.label and bool(option.choices) == (option.kind == "list-single") for option in OPTIONS)
    assert {option.group for option in OPTIONS} == set(Group)
    for unit in ("seconds", "bytes"):
        assert all(unit in option.label.lower() for option in OPTIONS if option.attribute.endswith(f"_{unit}"))
