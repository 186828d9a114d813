"""Tokens of an issuer over AMQP: as the password of PLAIN, and at `$cbs`."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from proton import ConnectionException, Message
from proton.utils import BlockingConnection, ConnectionClosed, LinkDetached, SendException

from frontends.logins.tokens import LEEWAY_SECONDS
from frontends.tools.servers.redis import RedisServer
from tests.doors.amqp.conftest import NewLog
from tests.doors.amqp.served import AmqpFrontend, With, consumer, one, producer
from tests.doors.frontend import ALICE, BOB, PASSWORD
from tests.doors.tokens import PEM, TRUSTED, signed

REFUSED = "Authentication failed|unauthorized"


@pytest.fixture(scope="module")
def trusting(redis: RedisServer) -> Iterator[AmqpFrontend]:
    """Provide a door that takes tokens, and passwords too."""
    roles = {"JWT_ROLES": "look viewer\nrule them admin\n", "JWT_ROLE_CLAIM": "realm_access.roles"}
    with AmqpFrontend(redis.url, JWT_KEYS=PEM, **TRUSTED, **roles) as frontend:
        yield frontend


def test_as_a_password(trusting: AmqpFrontend, new_log: NewLog) -> None:
    """The user is the token's account, or nobody; a long token fits, and passwords still work."""
    queue = new_log(queueing=True)
    for user, password in (
        (ALICE, signed()),
        ("ALICE@example.org", signed(groups=["x" * 50] * 100)),
        (ALICE, PASSWORD),
    ):
        connection = trusting.connect(user, password)
        producer(connection, queue).send(Message(body="x"))
        assert one(consumer(connection, queue, credit=1)).body == "x"
        connection.close()


@pytest.mark.parametrize(
    ("user", "token"),
    [
        (BOB, signed()),
        (ALICE, signed(aud="others")),
        (ALICE, signed(iss="https://elsewhere.example.org")),
        (ALICE, signed(exp=int(time.time()) - 60)),
        (ALICE, signed(sub="alice")),
        (ALICE, signed() + "x"),
        (ALICE, "eyJ"),
    ],
)
def test_refused(trusting: AmqpFrontend, user: str, token: str) -> None:
    """A token of somebody else, another issuer or audience, or that has ended, lets nobody in."""
    with pytest.raises(ConnectionException, match=REFUSED):
        trusting.connect(user, token)


def test_ends_with_its_token(trusting: AmqpFrontend) -> None:
    """The connection ends when the token does, with the leeway of clocks."""
    connection = trusting.connect(ALICE, signed(exp=int(time.time()) + 2 - LEEWAY_SECONDS))
    with pytest.raises(ConnectionClosed, match="the token has expired"):
        connection.wait(lambda: False, timeout=15)


def test_at_cbs(trusting: AmqpFrontend, new_log: NewLog) -> None:
    """A token that is put opens what its account may use, until it ends; a newer one goes on, and another's is refused."""
    log, other = new_log(), new_log()
    connection = BlockingConnection(f"amqp://127.0.0.1:{trusting.port}", timeout=20, allowed_mechs="ANONYMOUS")
    asking, answers = producer(connection, "$cbs"), consumer(connection, "$cbs")

    def put(token: str, kind: str = "jwt") -> tuple[int, str]:
        asking.send(Message(body=token, properties={"operation": "put-token", "type": kind, "name": "any"}))
        said: Any = one(answers).properties

        return said["status-code"], said["status-description"]

    assert put(signed(), "amqp:other") == (
        400,
        "only put-token of servicebus.windows.net:sastoken and jwt is supported",
    )
    assert put(signed(iss="elsewhere"))[0] == 401
    assert put("SharedAccessSignature sr=a&sig=b&se=5&skn=c", "servicebus.windows.net:sastoken")[0] == 401
    with pytest.raises(LinkDetached, match="put a token at"):
        producer(connection, log)
    assert put(signed(exp=int(time.time()) + 1 - LEEWAY_SECONDS))[0] == 202
    assert put(signed(exp=int(time.time()) + 3 - LEEWAY_SECONDS)) == (202, "Accepted")
    assert put(signed(sub=BOB)) == (401, "the connection belongs to another JID")
    producer(connection, other).send(Message(body=b"x", inferred=True))
    consumer(connection, f"{log}/ConsumerGroups/$Default/Partitions/0")
    with pytest.raises(ConnectionClosed, match="the token has expired"):
        connection.wait(lambda: False, timeout=15)


def test_roles(trusting: AmqpFrontend, new_log: NewLog) -> None:
    """A token's role holds for its account until a newer token says otherwise; it lets nobody work on items."""
    queue = new_log(queueing=True, pubsub__access_model="whitelist", pubsub__publish_model="publishers")
    issued = int(time.time()) - 30

    def may(role: list[str], at: int) -> tuple[bool, bool, bool]:
        token = signed(sub="carol@example.org", iat=issued + at, realm_access={"roles": role})
        connection = trusting.connect("carol@example.org", token)
        found = []
        for attach in (
            lambda: consumer(connection, queue, With(copies=True)),
            lambda: producer(connection, queue).send(Message(body="x")),
            lambda: consumer(connection, queue),
        ):
            try:
                attach()
                found.append(True)
            except (LinkDetached, SendException):
                found.append(False)
        connection.close()
        return found[0], found[1], found[2]

    assert may(["other"], 0) == (False, False, False)
    assert may(["look"], 1) == (True, False, False)
    assert may(["look", "rule them"], 2) == (True, True, False)
    assert may([], 3) == (False, False, False)
    # An older token has no more say than the newest one.
    assert may(["rule them"], 2) == (False, False, False)


def test_changed_keys(redis: RedisServer, tmp_path: Path) -> None:
    """When the keys of tokens change, connections of tokens that they had signed end."""
    file = tmp_path / "keys"
    file.write_text(PEM)
    with AmqpFrontend(redis.url, JWT_KEYS_FILE=str(file), **TRUSTED) as frontend:
        connection = frontend.connect(ALICE, signed())
        other = ec.generate_private_key(ec.SECP256R1()).public_key()
        file.write_bytes(other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        frontend.look()
        with pytest.raises(ConnectionClosed, match="no longer valid"):
            connection.wait(lambda: False, timeout=15)
