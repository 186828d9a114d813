"""Roles by name, by domain and by token, and which commands they are enough for."""

import pytest

from broker.model import audit
from broker.model.commands import Configure, Describe, Purge, Read, Subscribe
from broker.model.names import Jid
from broker.model.nodes.nodes import Affiliation, NodeRecord
from broker.model.nodes.options import NodeConfig
from broker.model.results import Refused
from broker.model.roles import Role, Roles, Said
from broker.redis_core.registry.rows import ROLES, refusal

ADMIN, JULIET, ROMEO, OTHER = (Jid(f"{name}@example.org") for name in ("admin", "juliet", "romeo", "other"))


class Clock:
    """Seconds since 1970."""

    now = 1000.0

    def __call__(self) -> float:
        """Tell them."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Provide a clock."""
    return Clock()


@pytest.fixture
def roles(clock: Clock) -> Roles:
    """Provide an administrator, an operator, and viewers of a domain."""
    return Roles(frozenset({ADMIN}), {JULIET: Role.OPERATOR, Jid("example.com"): Role.VIEWER}, ROLES, clock)


def test_names(roles: Roles) -> None:
    """An account has the role of its name, else that of its domain."""
    assert (roles.of(ADMIN), roles.of(JULIET), roles.of(OTHER)) == (Role.ADMIN, Role.OPERATOR, None)
    assert roles.of(Jid("any@example.com")) is Role.VIEWER
    assert roles.of(Jid("any@sub.example.com")) is None


def test_tokens(roles: Roles, clock: Clock) -> None:
    """The newest token decides until it ends; a role by name is no less for it."""
    roles.note(ROMEO, Said(Role.ADMIN, 900, 1010))
    assert roles.of(ROMEO) is Role.ADMIN
    roles.note(ROMEO, Said(None, 950, 1005))
    assert roles.of(ROMEO) is None
    # An older one, seen later.
    roles.note(ROMEO, Said(Role.ADMIN, 900, 1010))
    assert roles.of(ROMEO) is None
    roles.note(ROMEO, Said(Role.OPERATOR, 960, 1003))
    roles.note(JULIET, Said(Role.VIEWER, 960, 1003))
    assert (roles.of(ROMEO), roles.of(JULIET)) == (Role.OPERATOR, Role.OPERATOR)
    clock.now = 1003
    assert (roles.of(ROMEO), roles.of(JULIET)) == (None, Role.OPERATOR)


def test_groups(roles: Roles, clock: Clock) -> None:
    """The newest token names the groups of an account until it ends; whether one brings news is told."""
    team, leads = Jid("group:team"), Jid("group:leads")
    assert roles.groups_of(ROMEO) == ()
    assert roles.note(ROMEO, Said(None, 900, 1010, (team,)))
    assert not roles.note(ROMEO, Said(None, 900, 1010, (team,)))
    assert roles.groups_of(ROMEO) == (team,) and roles.groups_of(JULIET) == ()
    assert roles.note(ROMEO, Said(None, 950, 1005, (leads,)))
    assert not roles.note(ROMEO, Said(None, 900, 1010, (team,)))
    assert roles.groups_of(ROMEO) == (leads,)
    clock.now = 1005
    assert roles.groups_of(ROMEO) == ()


def test_many_tokens(roles: Roles, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """When many accounts have come, those whose tokens have ended are forgotten."""
    monkeypatch.setattr("broker.model.roles._NOTED_MOST", 3)
    for number in range(3):
        roles.note(Jid(f"a{number}@example.org"), Said(Role.VIEWER, 0, 1001 + number))
    clock.now = 1002.5
    roles.note(ROMEO, Said(Role.VIEWER, 0, 2000))
    assert set(roles._noted) == {"a2@example.org", ROMEO}


def test_judging(roles: Roles) -> None:
    """A role is enough for what the table says, also where the node bars; nobody subscribes by one, and admins read the audit."""
    record = NodeRecord("n", "i", 1, NodeConfig(), {JULIET: Affiliation.OUTCAST}).add_roles(roles)
    paused, titled = {"stanzaq#state": ("paused",)}, {"pubsub#title": ("x",)}
    roles.note(ROMEO, Said(Role.ADMIN, 0, 2000))
    for jid, command, may in (
        (JULIET, Purge("n", JULIET), True),
        (JULIET, Configure("n", JULIET, paused), True),
        (JULIET, Configure("n", JULIET, paused | titled), False),
        (JULIET, Subscribe("n", JULIET, JULIET, 1), False),
        (OTHER, Purge("n", OTHER), False),
        (ADMIN, Configure("n", ADMIN, titled), True),
        (Jid("any@example.com"), Describe("n", Jid("any@example.com/x"), as_owner=True), True),
        (Jid("any@example.com"), Purge("n", Jid("any@example.com/x")), False),
        (JULIET, Read(audit.NODE, JULIET, 0, "@earliest", 1), False),
        (ROMEO, Read(audit.NODE, ROMEO, 0, "@earliest", 1), True),
    ):
        assert (refusal(command, record) is None) is may, (jid, command)
        assert isinstance(refusal(command, record), Refused | None)
