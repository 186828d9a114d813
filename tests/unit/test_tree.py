"""The tree of nodes: requests about it, the scope of a subscription, and a pull's own collection."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.names import Jid
from broker.model.nodes import pull_subscriptions
from broker.model.nodes.tree import Scope, SubscriptionType, TreeRequest, tree_request
from broker.model.problems import MalformedRequest, Problem

TITLE = {"pubsub#title": ("t",)}


@given(st.sampled_from(SubscriptionType), st.none() | st.integers(1, 10), st.integers(1, 12))
def test_scopes(kind: SubscriptionType, depth: int | None, level: int) -> None:
    """H5: a scope is read back as it was written; it reaches so many levels, or all."""
    scope = Scope(kind, depth)
    assert Scope.parse(str(scope)) == scope and str(scope) == f"{kind.value} {depth or 'all'}"
    assert scope.reaches(level) is (depth is None or level <= depth) and scope.works is (
        kind is not SubscriptionType.NODES
    )


@pytest.mark.parametrize(
    ("about", "where"),
    [
        ({}, TreeRequest()),
        ({"pubsub#collection": ()}, TreeRequest("")),
        ({"pubsub#collection": ("",)}, TreeRequest("")),
        ({"pubsub#collection": ("", "all")}, TreeRequest("all")),
        ({"pubsub#children": ()}, TreeRequest(None, ())),
        ({"pubsub#children": ("b", "", "a", "b")}, TreeRequest(None, ("b", "a"))),
        ({"pubsub#collection": ("all",), "pubsub#children": ("a",)}, TreeRequest("all", ("a",))),
    ],
)
def test_where_a_node_stands(about: dict[str, tuple[str, ...]], where: TreeRequest) -> None:
    """H4: the two fields are no options of the node; an empty one is the root, and a child counts once."""
    assert tree_request({**TITLE, **about}) == (TITLE, where)


def test_two_parents() -> None:
    """H2: the graph is a tree here."""
    with pytest.raises(MalformedRequest) as refused:
        tree_request({"pubsub#collection": ("a", "b")})
    assert refused.value.problem is Problem.NOT_ACCEPTABLE and "pubsub#collection" in refused.value.detail


def test_pull_subscriptions() -> None:
    """R11: a pull subscription is recognised by its JID alone, and the record of one over several queues by its name."""
    name = "0123456789abcdef"
    jid = pull_subscriptions.pull_jid(Jid("a@x"), name)
    others = ("a@x", f"a@x/lease-{name}0", f"a@x/lease-{name[:-1]}", f"a@x/lease-{name.upper()}", f"lease-{name}@x")
    assert jid == f"a@x/lease-{name}" and pull_subscriptions.is_pull_subscription(jid)
    assert not any(map(pull_subscriptions.is_pull_subscription, others))
    assert pull_subscriptions.is_lease_record(f"lease-{name}")
    assert not any(map(pull_subscriptions.is_lease_record, ("jobs", f"lease-{name}/x", f"lease-{name[:-1]}")))
