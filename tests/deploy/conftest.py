"""Gateways of Oblivious HTTP, built if they are not there yet."""

from __future__ import annotations

import pytest
from programs import fetched

from deploy.ohttp import service
from deploy.ohttp.service import LocalGateway


@pytest.fixture(scope="session")
def program():
    return built()


def built(*of):
    with fetched():
        return service.program(*of)


@pytest.fixture
def gateway(tmp_path, program):
    gateway = LocalGateway(tmp_path / "gateway")
    yield gateway
    gateway.stop()
