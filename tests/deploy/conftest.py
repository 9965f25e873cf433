"""Gateways of Oblivious HTTP, built if they are not there yet."""

from __future__ import annotations

import pytest

from deploy.errors import MissingToolError, UnavailableError
from deploy.ohttp import service
from deploy.ohttp.service import LocalGateway


@pytest.fixture(scope="session")
def program():
    return built()


def built(*of):
    try:
        return service.program(*of)
    except (MissingToolError, UnavailableError) as error:
        pytest.skip(str(error))


@pytest.fixture
def gateway(tmp_path, program):
    gateway = LocalGateway(tmp_path / "gateway")
    yield gateway
    gateway.stop()
