"""A real PostgreSQL server, started once for all tests of this folder; a database for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import sqlalchemy as sql
from local_postgres import PASSWORD, USER, LocalPostgres

_numbers = itertools.count()


@pytest.fixture(scope="session")
def _server() -> Iterator[LocalPostgres]:
    server = LocalPostgres()
    yield server
    server.remove()


@pytest.fixture
def server(_server: LocalPostgres) -> LocalPostgres:
    """The server, running."""
    if not _server.running:
        _server.start()
    return _server


@pytest.fixture
def url(server: LocalPostgres) -> sql.URL:
    """A database of its own for a test."""
    name = f"test{next(_numbers)}"
    server.execute("postgres", f"CREATE DATABASE {name}")
    return sql.URL.create(
        "postgresql+psycopg", USER, PASSWORD, "127.0.0.1", server.port, database=name
    )
