"""A plan can be pinned, by its name on the wire and by the digest of its document."""

from __future__ import annotations

import pytest
from device_plans import plan, threadless

from clientsdk import Client, MemoryPublisher
from sotto.errors import ParameterError, PlanError


def test_an_app_pins_the_plan_that_it_was_made_for(tmp_path):
    path = tmp_path / "device.db"
    wanted, other = plan(), plan(version=2)
    options = {"state": path, "publisher": MemoryPublisher(), "background": False}
    with pytest.raises(PlanError) as caught:
        Client(other, expect=wanted.fingerprint_hex, **options)
    assert wanted.fingerprint_hex in str(caught.value)
    assert other.fingerprint_hex in str(caught.value)
    # Nothing was opened, and so nothing pinned.
    assert not path.exists()
    Client(wanted.to_json(), expect=wanted.fingerprint_hex.upper(), **options).close()
    Client(plan(owner="else@fleet.example"), expect=wanted.fingerprint_hex, **options).close()
    # The digest pins texts and dates too.
    Client(wanted, expect=wanted.digest.hex(), **options).close()
    with pytest.raises(PlanError, match="made for"):
        Client(plan(purpose="Another"), expect=wanted.digest.hex(), **options)


@pytest.mark.parametrize("expect", ["", "abc", "g" * 64, "0" * 63, b"0" * 32, 7])
def test_what_is_no_fingerprint_cannot_be_pinned(expect):
    with pytest.raises(ParameterError):
        threadless(plan(), expect=expect)
