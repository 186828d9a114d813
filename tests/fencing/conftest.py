"""Stores that fences guard: a PostgreSQL with a table of orders, and another database without anything."""

from collections.abc import Iterator

import psycopg
import pytest

from stanzaq.fencing import TABLE
from tests.fencing.postgres import BARE, PostgresServer

_ORDERS = "CREATE TABLE orders (id text PRIMARY KEY, tokens bigint[] NOT NULL)"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Provide a PostgreSQL; `make test` installs it, so its absence is a failure."""
    with PostgresServer() as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(TABLE)
            connection.execute(_ORDERS)
            connection.execute(f"CREATE DATABASE {BARE}")
        yield server
