"""The learnt score: the log-likelihood ratio of independent bits, and nothing of what is noise."""

from __future__ import annotations

import numpy as np
import pytest

from mechanisms.audit.attack import LinearScore

SEED = 20_260_702
N = 16_000


def bits_of(likely: list[tuple[float, float]], secrets: np.ndarray, seed: int = SEED) -> np.ndarray:
    """Return bytes whose bits are set with the probability of their secret."""
    uniform = np.random.default_rng(seed).random((len(secrets), len(likely)))
    bits = uniform < np.where(secrets[:, None], *np.array(likely).T[::-1])
    return np.packbits(bits, axis=1, bitorder="little")


def fair(n: int = N) -> np.ndarray:
    return np.random.default_rng(SEED + 1).random(n) < 0.5


def test_weights_are_log_likelihood_ratios() -> None:
    secrets, none = fair(), np.empty((N, 0))
    likely = [(0.5, 0.5)] * 13 + [(0.3, 0.5), (0.6, 0.4), (0.5, 0.5)]
    score = LinearScore.fit(bits_of(likely, secrets), none, secrets)
    found = dict(zip(score.bits.tolist(), score.weights.tolist(), strict=True))
    expected = {13: np.log(7 / 3), 14: -2 * np.log(1.5)}
    assert {13, 14} <= set(found)
    for bit, weight in found.items():
        # Ten standard errors of a weight.
        assert weight == pytest.approx(expected.get(bit, 0.0), abs=10 * 2 / np.sqrt(N / 2))


def test_bits_that_tell_nothing_are_left_out() -> None:
    """Some 1.4 of 512 such bits are more than three standard deviations away by chance."""
    secrets = fair()
    planes = bits_of([(0.5, 0.5)] * 512, secrets)
    score = LinearScore.fit(planes, np.empty((N, 0)), secrets)
    assert len(score.bits) == len(score.weights) <= 20
    assert np.ptp(score(planes, np.empty((N, 0)))) < 20 * 0.1


def test_what_is_said_twice_counts_once() -> None:
    """Unlike the sum of what each bit says, a regression knows that bits go together."""
    secrets = fair()
    one = bits_of([(0.3, 0.7)] + [(0.5, 0.5)] * 7, secrets)
    score = LinearScore.fit(np.concatenate([one, one], axis=1), np.empty((N, 0)), secrets)
    assert score.weights.sum() == pytest.approx(2 * np.log(7 / 3), abs=0.4)


def test_a_bit_that_tells_all_has_a_finite_weight() -> None:
    secrets = fair()
    score = LinearScore.fit(secrets[:, None].astype(np.uint8), np.empty((N, 0)), secrets)
    assert score.bits.tolist() == [0]
    assert 5 < score.weights[0] < 50


@pytest.mark.parametrize("secrets", [np.zeros(5, dtype=bool), np.ones(1, dtype=bool)])
def test_chains_of_one_input_alone_teach_nothing(secrets: np.ndarray) -> None:
    planes = np.full((len(secrets), 2), 0xA5, dtype=np.uint8)
    score = LinearScore.fit(planes, np.ones((len(secrets), 1)), secrets)
    assert np.ptp(score(planes, np.ones((len(secrets), 1)))) == 0
