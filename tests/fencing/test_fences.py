"""Fences in PostgreSQL: a token smaller than one seen is refused over each driver, and nothing of its block is written."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import UUID

import asyncpg
import django
import django.db
import psycopg
import pytest
import sqlalchemy
from django.conf import settings
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from stanzaq import Fenced, Job, StanzaqError
from tests.fencing.jobs import make_job
from tests.fencing.postgres import BARE, FULL, PostgresServer

_WRITE = (
    "INSERT INTO orders VALUES ({}, ARRAY[CAST({} AS bigint)])"
    " ON CONFLICT (id) DO UPDATE SET tokens = orders.tokens || excluded.tokens"
)
_FORMAT, _NUMBERED, _NAMED = _WRITE.format("%s", "%s"), _WRITE.format("$1", "$2"), _WRITE.format(":id", ":token")

_keys = (f"order-{number}" for number in count())


class Failed(Exception):  # noqa: N818
    """What a block of writes raises."""


@dataclass(frozen=True)
class Order:
    """A job's write of its token to a row of orders, which may fail after it."""

    server: PostgresServer
    job: Job[Any]
    key: str
    database: str = FULL
    fails: bool = False

    def end(self) -> None:
        """Fail if the write is to."""
        if self.fails:
            raise Failed


Write = Callable[[Order], Awaitable[None]]


def _psycopg(order: Order) -> None:
    with (
        psycopg.connect(order.server.url(order.database), autocommit=True) as connection,
        order.job.fence(connection, "orders", order.key) as same,
    ):
        assert same is connection
        connection.execute(_FORMAT, (order.key, order.job.token))
        order.end()


async def _async_psycopg(order: Order) -> None:
    # Without autocommit the fence begins the transaction too.
    connecting = psycopg.AsyncConnection.connect(order.server.url(order.database))
    async with await connecting as connection, order.job.fence(connection, "orders", order.key):
        await connection.execute(_FORMAT, (order.key, order.job.token))
        order.end()


async def _asyncpg(order: Order) -> None:
    async with (
        asyncpg.create_pool(order.server.url(order.database), min_size=1) as pool,
        pool.acquire() as connection,
        order.job.fence(connection, "orders", order.key),
    ):
        await connection.execute(_NUMBERED, order.key, order.job.token)
        order.end()


def _session(order: Order) -> None:
    engine = sqlalchemy.create_engine(order.server.url(order.database, "postgresql+psycopg"), poolclass=NullPool)
    with Session(engine) as session, order.job.fence(session, "orders", order.key):
        session.execute(sqlalchemy.text(_NAMED), {"id": order.key, "token": order.job.token})
        order.end()


def _begun_session(order: Order) -> None:
    engine = sqlalchemy.create_engine(order.server.url(order.database, "postgresql+psycopg"), poolclass=NullPool)
    with Session(engine) as session:
        session.execute(sqlalchemy.text("SELECT 1"))
        with order.job.fence(session, "orders", order.key):
            session.execute(sqlalchemy.text(_NAMED), {"id": order.key, "token": order.job.token})
            order.end()
        # A transaction had begun before the fence, so its end is the program's.
        session.commit()


def _connection(order: Order) -> None:
    engine = sqlalchemy.create_engine(order.server.url(order.database, "postgresql+psycopg"), poolclass=NullPool)
    with engine.connect() as connection, order.job.fence(connection, "orders", order.key):
        connection.execute(sqlalchemy.text(_NAMED), {"id": order.key, "token": order.job.token})
        order.end()


async def _async_session(order: Order) -> None:
    engine = create_async_engine(order.server.url(order.database, "postgresql+asyncpg"), poolclass=NullPool)
    async with AsyncSession(engine) as session, order.job.fence(session, "orders", order.key):
        await session.execute(sqlalchemy.text(_NAMED), {"id": order.key, "token": order.job.token})
        order.end()


async def _async_connection(order: Order) -> None:
    engine = create_async_engine(order.server.url(order.database, "postgresql+psycopg"), poolclass=NullPool)
    async with engine.connect() as connection, order.job.fence(connection, "orders", order.key):
        await connection.execute(sqlalchemy.text(_NAMED), {"id": order.key, "token": order.job.token})
        order.end()


def _django(order: Order) -> None:
    if not settings.configured:
        common = {
            "ENGINE": "django.db.backends.postgresql",
            "USER": "stanzaq",
            "HOST": "127.0.0.1",
            "PORT": order.server.port,
        }
        named = {"default": {**common, "NAME": FULL}, BARE: {**common, "NAME": BARE}}
        settings.configure(DATABASES=named, USE_TZ=True)
        django.setup()
    connection: Any = django.db.connection if order.database == FULL else django.db.connections[order.database]
    try:
        with order.job.fence(connection, "orders", order.key), connection.cursor() as cursor:
            cursor.execute(_FORMAT, (order.key, order.job.token))
            order.end()
    finally:
        connection.close()


def _in_thread(write: Callable[[Order], None]) -> Write:
    return lambda order: asyncio.to_thread(write, order)


_WAYS: dict[str, Write] = {
    "psycopg": _in_thread(_psycopg),
    "psycopg-async": _async_psycopg,
    "asyncpg": _asyncpg,
    "sqlalchemy-session": _in_thread(_session),
    "sqlalchemy-begun-session": _in_thread(_begun_session),
    "sqlalchemy-connection": _in_thread(_connection),
    "sqlalchemy-async-session": _async_session,
    "sqlalchemy-async-connection": _async_connection,
    "django": _in_thread(_django),
}


@pytest.fixture(params=list(_WAYS))
def write(request: pytest.FixtureRequest) -> Write:
    """Provide a way to write, of each driver."""
    return _WAYS[request.param]


def _tokens(server: PostgresServer, key: str) -> list[int]:
    """Read which jobs have written an order, one after another."""
    with psycopg.connect(server.url()) as connection:
        row = connection.execute("SELECT tokens FROM orders WHERE id = %s", (key,)).fetchone()
    return row[0] if row else []


async def test_smaller_tokens_are_refused(postgres: PostgresServer, write: Write) -> None:
    """The same job may write again and a newer one too, but an older one no more; what others have written stays."""
    key = next(_keys)
    for token in (5, 5, 7, 9_007_199_254_740_991):
        await write(Order(postgres, make_job(token), key))
    told = f"orders {key} is refused under the token 7: a job of orders with a newer lock has been here"
    with pytest.raises(Fenced, match=f"^{told}$"):
        await write(Order(postgres, make_job(7), key))
    assert _tokens(postgres, key) == [5, 5, 7, 9_007_199_254_740_991]


async def test_what_fails_leaves_nothing(postgres: PostgresServer, write: Write) -> None:
    """Neither a write nor a token of a block that has failed is kept: check and write are one transaction."""
    key = next(_keys)
    with pytest.raises(Failed):
        await write(Order(postgres, make_job(9), key, fails=True))
    await write(Order(postgres, make_job(4), key))
    assert _tokens(postgres, key) == [4]


async def test_other_queues_are_not_compared(postgres: PostgresServer, write: Write) -> None:
    """A token says nothing about those of another node."""
    key = next(_keys)
    await write(Order(postgres, make_job(9), key))
    await write(Order(postgres, make_job(4, "refunds"), key))
    with pytest.raises(Fenced):
        await write(Order(postgres, make_job(3, "refunds"), key))
    assert _tokens(postgres, key) == [9, 4]


async def test_no_table(postgres: PostgresServer, write: Write) -> None:
    """A database without the table says how it is created, in one sentence."""
    wanted = (
        r"^the table of fences is missing: execute the statement stanzaq\.fencing\.TABLE once, e\.g\. in a migration$"
    )
    with pytest.raises(StanzaqError, match=wanted):
        await write(Order(postgres, make_job(1), next(_keys), BARE))


async def test_inside_a_transaction(postgres: PostgresServer) -> None:
    """A fence inside a transaction of the program is part of it, and what it refuses can be caught there."""
    key, other = next(_keys), next(_keys)
    await _async_psycopg(Order(postgres, make_job(5), key))
    async with await psycopg.AsyncConnection.connect(postgres.url()) as connection, connection.transaction():
        await connection.execute(_FORMAT, (other, 0))
        with pytest.raises(Fenced):
            async with make_job(4).fence(connection, "orders", key):
                pytest.fail("it was let in")
        async with make_job(6).fence(connection, "orders", other):
            await connection.execute(_FORMAT, (other, 6))
        async with await psycopg.AsyncConnection.connect(postgres.url()) as outside:
            rows = await outside.execute("SELECT token FROM stanzaq_fences WHERE key = %s", (other,))
            assert await rows.fetchone() is None
    assert (_tokens(postgres, key), _tokens(postgres, other)) == ([5], [0, 6])


async def test_snapshots(postgres: PostgresServer) -> None:
    """In a transaction with a snapshot from before the newer job's write, PostgreSQL refuses by itself."""
    key = next(_keys)
    await _async_psycopg(Order(postgres, make_job(5), key))
    async with await psycopg.AsyncConnection.connect(postgres.url()) as connection:
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await connection.execute("SELECT 1 FROM orders")
        await _async_psycopg(Order(postgres, make_job(7), key))
        with pytest.raises(psycopg.errors.SerializationFailure):
            async with make_job(6).fence(connection, "orders", key):
                pytest.fail("it was let in")
    assert _tokens(postgres, key) == [5, 7]


async def test_names_and_keys(postgres: PostgresServer) -> None:
    """Fences of other names and keys are others; a key is what it is as text."""
    same = UUID(int=7)
    with psycopg.connect(postgres.url()) as connection:
        marks: list[tuple[int, str, str | int]] = [(9, "a", 1), (8, "b", 1), (7, "a", 2), (9, "a", str(same))]
        for token, name, key in marks:
            with make_job(token).fence(connection, name, key):
                pass
        for equal in ("1", same):
            with pytest.raises(Fenced), make_job(8).fence(connection, "a", equal):
                pytest.fail("it was let in")


async def test_wrong_arguments(postgres: PostgresServer) -> None:
    """Each bad argument gets one sentence that says what to give."""
    job = make_job(1)
    with pytest.raises(
        TypeError, match=r"^no fence knows a builtins\.int: give a connection of psycopg, asyncpg, Django"
    ):
        job.fence(7, "orders", "1")
    async with asyncpg.create_pool(postgres.url(), min_size=1) as pool:
        with pytest.raises(TypeError, match=r"^no fence knows a asyncpg\.pool\.Pool: "):
            job.fence(pool, "orders", "1")
    with (
        sqlite3.connect(":memory:") as lite,
        pytest.raises(TypeError, match=r"^no fence knows a sqlite3\.Connection: "),
    ):
        job.fence(lite, "orders", "1")
    lite.close()
    with psycopg.connect(postgres.url()) as connection:
        with pytest.raises(TypeError, match=r"^the connection blocks: write `with job\.fence\(…\)`, "):
            async with job.fence(connection, "orders", "1"):
                pass
        with pytest.raises(TypeError, match=r"^fence\(…, 'orders', None\): name what is written by a str, and a key"):
            job.fence(connection, "orders", None)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"^the job of orders has no token, so there is nothing to compare: "):
            make_job(0).fence(connection, "orders", "1")
    async with await psycopg.AsyncConnection.connect(postgres.url()) as unblocking:
        with (
            pytest.raises(TypeError, match=r"^the connection is asynchronous: write `async with job\.fence\(…\)`$"),
            job.fence(unblocking, "orders", "1"),
        ):
            pass


def test_another_database() -> None:
    """The statement is PostgreSQL's, so a connection to another database is refused before it."""
    engine = sqlalchemy.create_engine("sqlite://")
    with (
        engine.connect() as connection,
        pytest.raises(TypeError, match=r"^fences are in PostgreSQL, and this is a connection to sqlite$"),
        make_job(1).fence(connection, "orders", "1"),
    ):
        pass
    engine.dispose()
