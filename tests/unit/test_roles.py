"""Roles by name, by domain and by token, and which commands they are enough for."""

import time
from dataclasses import replace

import pytest
from pydantic import SecretStr

from broker.model import audit
from broker.model.commands import Configure, Delete, Describe, MoveItems, Publish, Purge, Read, Subscribe
from broker.model.names import Jid
from broker.model.nodes.nodes import Affiliation, NodeRecord
from broker.model.nodes.options import AccessModel, NodeConfig, PublishModel
from broker.model.results import Refused
from broker.model.roles import Role, Roles, Said
from broker.redis_core.core import RedisCore
from broker.redis_core.registry.authorization import may_await, must_be_subscribed
from broker.redis_core.registry.rows import ROLES, refusal
from broker.settings import Settings
from frontends.compose import _TokenSource

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
    """A role is enough for what the table says, also where the node bars; nobody subscribes by one."""
    record = NodeRecord("n", "i", 1, NodeConfig(), {JULIET: Affiliation.OUTCAST}).add_roles(roles)
    paused, titled = {"stanzaq#state": ("paused",)}, {"pubsub#title": ("x",)}
    for jid, command, may in (
        (JULIET, Purge("n", JULIET), True),
        (JULIET, Configure("n", JULIET, paused), True),
        (JULIET, Configure("n", JULIET, paused | titled), False),
        (JULIET, Subscribe("n", JULIET, JULIET, 1), False),
        (OTHER, Purge("n", OTHER), False),
        (ADMIN, Configure("n", ADMIN, titled), True),
        (Jid("any@example.com"), Describe("n", Jid("any@example.com/x"), as_owner=True), True),
        (Jid("any@example.com"), Purge("n", Jid("any@example.com/x")), False),
    ):
        assert (refusal(command, record) is None) is may, (jid, command)
        assert isinstance(refusal(command, record), Refused | None)


def test_the_audit(roles: Roles) -> None:
    """Admins look at the audit, and nobody does more by a role, nor moves anything there; an administrator owns it."""
    log = NodeRecord(audit.NODE, "i", 1, NodeConfig(queueing=False, access_model=AccessModel.WHITELIST), {}).add_roles(
        roles
    )
    roles.note(ROMEO, Said(Role.ADMIN, 0, 2000))
    for jid, looks in ((JULIET, False), (ROMEO, True), (ADMIN, True)):
        assert (refusal(Read(audit.NODE, jid, 0, "@earliest", 1), log) is None) is looks
        for command in (Purge(audit.NODE, jid), Delete(audit.NODE, jid), Publish(audit.NODE, jid, None, b"x", 1)):
            assert (refusal(command, log) is None) is (jid == ADMIN), command
        assert log.is_owned_by(MoveItems("n", jid, audit.NODE, (), "", 10)) is (jid == ADMIN)


def test_publishes_of_admins(roles: Roles) -> None:
    """An admin publishes where only subscribers do, and names items of others as parents."""
    record = NodeRecord("n", "i", 1, NodeConfig(publish_model=PublishModel.SUBSCRIBERS), {}).add_roles(roles)
    closed = replace(record, config=NodeConfig())
    for jid, may in ((OTHER, False), (ROMEO, True)):
        roles.note(ROMEO, Said(Role.ADMIN, 0, 2000))
        publish = Publish("n", jid, None, b"x", 1)
        assert must_be_subscribed(record, publish) is not may
        assert may_await(closed, publish) is may


def test_other_settings() -> None:
    """What tokens have said is forgotten with the keys and the lines by which they said it."""
    given = Settings(redis_url="redis://127.0.0.1", xmpp_domain="queue.example.org", xmpp_secret=SecretStr("s"))
    core = RedisCore(given, None)
    source = _TokenSource(given, core)
    core.roles.note(ROMEO, Said(Role.ADMIN, 0, time.time() + 60))
    assert not source.renew(given) and core.roles.of(ROMEO) is Role.ADMIN
    assert source.renew(given.model_copy(update={"jwt_roles": {"team": Role.VIEWER}})) and core.roles.of(ROMEO) is None
