"""Pseudonyms: what the derivation is, and that a secret says nothing of other periods."""

from __future__ import annotations

import hashlib

from clientsdk.store import pseudonyms
from mechanisms.randomness import SystemSource
from mechanisms.testing import SeededSource


def test_the_derivation_is_the_agreed_one() -> None:
    secret = bytes(range(32))
    fresh = pseudonyms.draw_secret(SeededSource(5))
    expected = hashlib.sha256(b"sotto.ratchet\0" + secret + fresh).digest()
    assert pseudonyms.advance(secret, SeededSource(5)) == expected
    number = (-3).to_bytes(8, "little", signed=True)
    expected = hashlib.sha256(b"sotto.pseudonym\0fleet.example\0" + number + secret).digest()
    assert pseudonyms.pseudonym("fleet.example", -3, secret) == expected[:16]


def test_pseudonyms_differ_by_collector_period_and_device() -> None:
    one, two = pseudonyms.draw_secret(SeededSource(1)), pseudonyms.draw_secret(SeededSource(2))
    names = {
        pseudonyms.pseudonym(collector, period, secret)
        for collector in ("a.example", "b.example")
        for period in (-1, 0, 1)
        for secret in (one, two)
    }
    assert len(names) == 12
    assert all(len(name) == 16 for name in names)


def test_two_that_begin_with_one_secret_part_at_the_first_step() -> None:
    secret = bytes(range(32))
    after = {pseudonyms.advance(secret, SystemSource()) for _ in range(100)}
    assert len(after) == 100
    assert {len(each) for each in after} == {32}


def test_a_step_depends_on_the_secret_before_it_too() -> None:
    """A generator that repeats itself does not make two devices one."""
    one, two = bytes(32), bytes(31) + b"\1"
    assert pseudonyms.advance(one, SeededSource(3)) != pseudonyms.advance(two, SeededSource(3))
