"""Pseudonyms: what the derivation is, and that it only runs forward."""

from __future__ import annotations

import hashlib
import time

from clientsdk import ratchet
from mechanisms.testing import SeededSource


def test_the_derivation_is_the_agreed_one() -> None:
    secret = bytes(range(32))
    assert ratchet.advance(secret, 1) == hashlib.sha256(b"sotto.ratchet\0" + secret).digest()
    number = (-3).to_bytes(8, "little", signed=True)
    expected = hashlib.sha256(b"sotto.pseudonym\0fleet.example\0" + number + secret).digest()
    assert ratchet.pseudonym("fleet.example", -3, secret) == expected[:16]


def test_pseudonyms_differ_by_collector_period_and_device() -> None:
    one, two = ratchet.fresh(SeededSource(1)), ratchet.fresh(SeededSource(2))
    names = {
        ratchet.pseudonym(collector, period, secret)
        for collector in ("a.example", "b.example")
        for period in (-1, 0, 1)
        for secret in (one, two)
    }
    assert len(names) == 12
    assert all(len(name) == 16 for name in names)


def test_the_secret_moves_one_step_a_period_however_they_pass() -> None:
    secret = ratchet.fresh(SeededSource(3))
    walked = secret
    for _ in range(5):
        walked = ratchet.advance(walked, 1)
    assert ratchet.advance(secret, 5) == walked
    assert ratchet.advance(secret, 0) == secret


def test_a_leap_through_the_ages_is_bounded() -> None:
    start = time.monotonic()
    ratchet.advance(bytes(32), 10**15)
    assert time.monotonic() - start < 10
