"""A real Flink session, the project's own, started once for all tests of this folder.

The tests are skipped, and say so, if Java is missing, or the archives are neither in the cache nor
to be fetched.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from programs import fetched

from deploy import jars
from deploy.flink.archives import archives as flink_archives
from deploy.flink.cluster import LocalFlink


@pytest.fixture(scope="session")
def archives() -> None:
    """All that a session is made of, or a reason to skip."""
    with fetched():
        jars.java()
        flink_archives()


@pytest.fixture(scope="session")
def _session(archives, tmp_path_factory) -> Iterator[LocalFlink]:
    session = LocalFlink(tmp_path_factory.mktemp("flink"))
    yield session
    session.stop()


@pytest.fixture
def local(_session: LocalFlink) -> LocalFlink:
    _session.start()
    return _session
