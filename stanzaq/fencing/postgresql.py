"""Fences in PostgreSQL, over psycopg, asyncpg, SQLAlchemy and Django. Knows the table of fences, and imports no driver by itself.

The row of a fence is locked from the check to the end of the transaction, which has the writes too: both happen or neither.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from stanzaq.errors import StanzaqError
from stanzaq.fencing.mark import Mark

_RAISE: Final = (
    "INSERT INTO stanzaq_fences AS fence (node, name, key, token) VALUES ({}, {}, {}, {})"
    " ON CONFLICT (node, name, key) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token"
    " RETURNING token"
)
"""Returns no row if the token is smaller than the one there."""

_FORMAT: Final = _RAISE.format("%s", "%s", "%s", "%s")
_NUMBERED: Final = _RAISE.format("$1", "$2", "$3", "$4")
_NAMED: Final = _RAISE.format(":node", ":name", ":key", ":token")

_UNDEFINED_TABLE: Final = "42P01"


@contextmanager
def guard_psycopg(connection: Any, mark: Mark) -> Iterator[Any]:  # noqa: ANN401  (each driver's connection, here and below)
    """Guard a block of writes over a `psycopg.Connection`, in a transaction or a savepoint."""
    with connection.transaction():
        with _explained():
            cursor = connection.execute(_FORMAT, _values(mark))
        _check(cursor.fetchone(), mark)
        yield connection


@asynccontextmanager
async def guard_async_psycopg(connection: Any, mark: Mark) -> AsyncIterator[Any]:  # noqa: ANN401
    """Guard a block of writes over a `psycopg.AsyncConnection`, in a transaction or a savepoint."""
    async with connection.transaction():
        with _explained():
            cursor = await connection.execute(_FORMAT, _values(mark))
        _check(await cursor.fetchone(), mark)
        yield connection


@asynccontextmanager
async def guard_asyncpg(connection: Any, mark: Mark) -> AsyncIterator[Any]:  # noqa: ANN401
    """Guard a block of writes over a connection of asyncpg, in a transaction or a savepoint."""
    async with connection.transaction():
        with _explained():
            row = await connection.fetchrow(_NUMBERED, *_values(mark))
        _check(row, mark)
        yield connection


@contextmanager
def guard_django(connection: Any, mark: Mark) -> Iterator[Any]:  # noqa: ANN401
    """Guard a block of writes over a connection of Django, in a transaction or a savepoint."""
    from django.db import transaction  # noqa: PLC0415  (whoever has the connection has it)

    _check_vendor(connection.vendor)
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        with _explained():
            cursor.execute(_FORMAT, _values(mark))
        _check(cursor.fetchone(), mark)
        yield connection


@contextmanager
def guard_sqlalchemy(connection: Any, mark: Mark) -> Iterator[Any]:  # noqa: ANN401
    """Guard a block of writes over a Session or Connection of SQLAlchemy, in a transaction or a savepoint."""
    from sqlalchemy import text  # noqa: PLC0415

    with connection.begin_nested() if connection.in_transaction() else connection.begin():
        # A session may have several engines; the fence is where its writes are by default.
        _check_vendor((connection.connection() if hasattr(connection, "add") else connection).dialect.name)
        with _explained():
            rows = connection.execute(text(_NAMED), _named(mark))
        _check(rows.first(), mark)
        yield connection


@asynccontextmanager
async def guard_async_sqlalchemy(connection: Any, mark: Mark) -> AsyncIterator[Any]:  # noqa: ANN401
    """Guard a block of writes over an AsyncSession or AsyncConnection of SQLAlchemy, in a transaction or a savepoint."""
    from sqlalchemy import text  # noqa: PLC0415

    async with connection.begin_nested() if connection.in_transaction() else connection.begin():
        _check_vendor((await connection.connection() if hasattr(connection, "add") else connection).dialect.name)
        with _explained():
            rows = await connection.execute(text(_NAMED), _named(mark))
        _check(rows.first(), mark)
        yield connection


def _values(mark: Mark) -> tuple[str, str, str, int]:
    return mark.node, mark.name, mark.key, mark.token


def _named(mark: Mark) -> dict[str, str | int]:
    return {"node": mark.node, "name": mark.name, "key": mark.key, "token": mark.token}


def _check(row: object, mark: Mark) -> None:
    """Raise Fenced if no row has come back."""
    if row is None:
        raise mark.refusal()


def _check_vendor(name: str) -> None:
    """Raise TypeError for another database."""
    if name != "postgresql":
        msg = f"fences are in PostgreSQL, and this is a connection to {name}"
        raise TypeError(msg)


@contextmanager
def _explained() -> Iterator[None]:
    """Raise StanzaqError if the table of fences is missing."""
    try:
        yield
    except Exception as error:
        # Django and SQLAlchemy raise exceptions of their own around the driver's.
        own = getattr(error, "orig", None) or error.__cause__ or error
        if getattr(own, "sqlstate", "") != _UNDEFINED_TABLE:
            raise
        msg = "the table of fences is missing: execute the statement stanzaq.fencing.TABLE once, e.g. in a migration"
        raise StanzaqError(msg) from error
