"""The SDK's own draws: exactly uniform, and nothing where there is nothing to draw."""

from __future__ import annotations

import hashlib

import pytest
from statistical import check_binomial

from clientsdk import draws
from mechanisms import randomness
from mechanisms.randomness import NO_SOURCE, SystemSource
from mechanisms.testing import SeededSource


def test_the_first_value_is_kept_without_a_draw() -> None:
    assert draws.replaces(NO_SOURCE, 1)


def test_replacing_has_probability_one_in_seen() -> None:
    seed = 42
    source = SeededSource(seed)
    for seen in (2, 3, 10):
        hits = sum(draws.replaces(source, seen) for _ in range(20_000))
        check_binomial(hits, 20_000, 1 / seen, label=seed)


def test_one_recording_hands_out_every_bit_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter([bytes(range(96)), b"\xff" * 16, b"\x01" * 2])
    asked: list[int] = []
    for module in (draws, randomness.os):
        monkeypatch.setattr(module, "urandom", lambda size: asked.append(size) or next(given))
    source = draws.OnceOnly()
    widths = (128, 22, 1, 192, 64)
    out = 0
    for number, width in enumerate(widths):
        out |= source.bits(width) << sum(widths[:number])
    assert out == int.from_bytes(bytes(range(64)), "little") & ((1 << sum(widths)) - 1)
    # The rest of the first bytes is too little for this, and is still there for a draw that fits.
    assert source.bits(128) == (1 << 128) - 1
    assert source.bits(9) == int.from_bytes(bytes(range(64)), "little") >> sum(widths) & 511
    assert asked == [96, 16]


def test_where_the_system_gives_no_more_a_recording_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the hash of what was kept back, of which no bit is ever handed out itself."""
    seed = bytes(range(64, 96))
    given = [b"\xff" * 64 + seed]

    def once(size: int) -> bytes:
        if not given:
            raise OSError("no more")
        return given.pop()

    for module in (draws, randomness.os):
        monkeypatch.setattr(module, "urandom", once)
    source = draws.OnceOnly()
    assert source.bits(500) == (1 << 500) - 1
    blocks = [
        hashlib.sha256(b"sotto.draws\0" + seed + number.to_bytes(8, "little")).digest()
        for number in range(4)
    ]
    # Each call takes blocks of its own.
    assert source.bits(300) == int.from_bytes((blocks[0] + blocks[1])[:38], "little") >> 4
    assert source.words(4).tobytes() == blocks[2]
    assert source.bits(12) == (1 << 12) - 1
    assert source.bits(1) == blocks[3][0] >> 7
    with pytest.raises(OSError, match="no more"):
        draws.OnceOnly()


def test_a_seeded_source_is_used_as_it_is() -> None:
    source = SeededSource(1)
    assert draws.for_one(source) is source
    first, second = (draws.for_one(SystemSource()) for _ in range(2))
    assert first is not second
    assert type(first) is draws.OnceOnly
