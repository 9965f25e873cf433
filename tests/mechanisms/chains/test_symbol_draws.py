"""Many symbols at once: the leading bits of a word decide as the whole word would."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from statistical import check_counts

from mechanisms.chains import symbols as module
from mechanisms.chains.symbols import TABLE_DRAWS, SymbolDraw, symbol_chain
from mechanisms.levels import GRAINS
from mechanisms.testing import SeededSource

SEED = 48271
HEAD = 1 << 48


def draws(size: int, *ladder: int) -> list[SymbolDraw]:
    chain = symbol_chain(size, ladder)
    return [chain.strongest, *chain.steps]


ALL = [
    *draws(2, 100_000, 1_000_000),
    *draws(5, 500_000, 1_000_000, 2_000_000),
    *draws(100, 1_000_000),
    *draws(4096, 1_000, 40_000_000),
    # The rarest move there is; ends on whole heads, so that nothing is open, and one beside them.
    SymbolDraw(2, GRAINS - 1, 1),
    SymbolDraw(4, GRAINS - 3 * (1 << 60), 1 << 60),
    SymbolDraw(4, GRAINS - 3 * ((1 << 60) - 1), (1 << 60) - 1),
    SymbolDraw(4096, 1 << 52, 1 << 52),
]


class Recorded:
    """A source that remembers the words it gave."""

    def __init__(self, seed: int) -> None:
        self._source, self.given = SeededSource(seed), []

    def bits(self, n: int) -> int:
        return self._source.bits(n)

    def words(self, n: int) -> NDArray[np.uint64]:
        self.given.append(self._source.words(n))
        return self.given[-1]


@pytest.mark.parametrize("draw", ALL, ids=lambda draw: f"{draw.size}-{draw.other}")
def test_a_decided_head_has_one_outcome_and_an_open_one_has_two(draw: SymbolDraw) -> None:
    # The last symbol moves to the index itself, so that nothing is renamed.
    last = draw.size - 1

    def outcome(word: int) -> int:
        moved = draw.apply(last, word)
        return module._KEPT if moved == last else moved

    boundaries = {draw.keep, *(draw.keep + k * draw.other for k in range(1, draw.size - 1))}
    split = {edge // HEAD for edge in boundaries if edge % HEAD}
    for head, decided in enumerate(draw._outcomes.tolist()):
        if head in split:
            assert decided == module._OPEN
        else:
            assert decided == outcome(head * HEAD) == outcome(head * HEAD + HEAD - 1)


@pytest.mark.parametrize("draw", ALL, ids=lambda draw: f"{draw.size}-{draw.other}")
def test_words_at_the_edges_have_the_outcome_above(draw: SymbolDraw) -> None:
    edges = [draw.keep + k * draw.other for k in range(draw.size - 1)]
    words = sorted({word for edge in edges for word in (edge - 1, edge)} | {0, GRAINS - 1})
    for symbol in {0, draw.size // 2, draw.size - 1}:
        outcomes = [symbol, *(other for other in range(draw.size) if other != symbol)]
        expected = [outcomes[bisect_right(edges, word)] for word in words]
        assert [draw.apply(symbol, word) for word in words] == expected
        many = draw.apply_many(np.full(len(words), symbol), np.array(words, dtype=np.uint64))
        assert many.tolist() == expected


@pytest.mark.parametrize("draw", ALL, ids=lambda draw: f"{draw.size}-{draw.other}")
def test_every_draw_is_that_of_a_whole_word(draw: SymbolDraw) -> None:
    n = TABLE_DRAWS + 3
    given = np.random.default_rng(SEED).integers(0, draw.size, n)
    source = Recorded(SEED)
    drawn = draw.draw_many(given, source)
    first, rest = source.given
    heads = first.view(np.uint16)[:n].astype(np.uint64)
    still = np.flatnonzero(draw._outcomes[heads] == module._OPEN)
    assert len(rest) == len(still)
    lows = np.random.default_rng(SEED + 1).integers(0, HEAD, n).astype(np.uint64)
    lows[still] = rest >> np.uint64(16)
    np.testing.assert_array_equal(drawn, draw.apply_many(given, heads << np.uint64(48) | lows))


@pytest.mark.parametrize("draw", ALL[:6], ids=lambda draw: f"{draw.size}-{draw.other}")
def test_the_law_of_many_draws(draw: SymbolDraw) -> None:
    print("seed", SEED)
    source = SeededSource(SEED)
    rung = draw.pair
    for symbol in range(min(draw.size, 3)):
        drawn = draw.draw_many(np.full(400_000, symbol), source)
        expected = [rung.p if out == symbol else rung.q for out in range(draw.size)]
        check_counts(np.bincount(drawn, minlength=draw.size), expected, label=(SEED, symbol))


def test_the_check_sees_a_threshold_that_is_off() -> None:
    (draw,) = draws(5, 1_000_000)
    wrong = SymbolDraw(5, draw.keep - 4 * (draw.other // 20), draw.other + draw.other // 20)
    assert wrong.keep + 4 * wrong.other == GRAINS
    drawn = wrong.draw_many(np.zeros(400_000, dtype=np.int64), SeededSource(SEED))
    q = Fraction(draw.other, GRAINS)
    with pytest.raises(AssertionError):
        check_counts(np.bincount(drawn, minlength=5), [1 - 4 * q, *[q] * 4])


def test_few_draws_and_many_symbols_take_whole_words() -> None:
    (draw,) = draws(5, 1_000_000)
    source = Recorded(SEED)
    draw.draw_many(np.zeros(TABLE_DRAWS - 1, dtype=np.int64), source)
    assert [len(words) for words in source.given] == [TABLE_DRAWS - 1]
    (large,) = draws(5000, 1_000_000)
    source = Recorded(SEED)
    large.draw_many(np.zeros(TABLE_DRAWS, dtype=np.int64), source)
    assert [len(words) for words in source.given] == [TABLE_DRAWS]
