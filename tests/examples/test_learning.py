"""The example of learning: its mechanisms are unbiased, its costs are stated, it runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from statistical import check_normal

from examples.learning import __main__ as command
from examples.learning.experiment import (
    LABELS,
    Reports,
    Result,
    centroids,
    logistic,
    population,
    receive,
    run,
    settings,
    split,
    table,
)
from examples.learning.senders import (
    DIMENSIONS,
    NO_PRIVACY,
    Sender,
    duchi,
    float_original,
    honest_senders,
    published,
    thresholds,
)

SEED = 20241108
N = 40_000


def check_means(sender: Sender, d: int = DIMENSIONS) -> None:
    """Check that many reports of one vector have it as their mean, coordinate by coordinate."""
    vector = np.linspace(0.05, 0.95, d)
    sent = sender.send(np.tile(vector, (N, 1)), SEED)
    error = np.nanstd(sent, axis=0) / np.sqrt((~np.isnan(sent)).sum(axis=0))
    check_normal(np.nanmean(sent, axis=0), vector, error, label=f"seed {SEED}")


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize("number", range(1, 5))
def test_what_is_sent_is_unbiased(number: int, epsilon: float) -> None:
    check_means(honest_senders(epsilon)[number])


def test_what_is_published_is_biased() -> None:
    with pytest.raises(AssertionError, match="off"):
        check_means(published(2.0))


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_duchi_is_unbiased_in_odd_and_even_dimensions(dimensions: int) -> None:
    check_means(float_original("Duchi", duchi, 2.0), dimensions)


def test_thresholds_keep_every_mean() -> None:
    """The server has the mean answer of every bin taken away and the mean put back."""
    train, _ = split(1)
    held = population(train, N, 1)
    sent = thresholds(4.0).send(held.features, SEED)
    assert (np.isnan(sent).sum(axis=1) == DIMENSIONS - 2).all()
    mean = held.features.mean(axis=0)
    # So it is for the clients of one digit alone.
    digit = held.labels == 3
    for some, expected in ((sent, mean), (sent[digit], held.features[digit].mean(axis=0))):
        error = np.nanstd(some, axis=0) / np.sqrt((~np.isnan(some)).sum(axis=0))
        check_normal(np.nanmean(some, axis=0), expected, error, label=f"seed {SEED}")
    with pytest.raises(AssertionError, match="off"):
        check_normal(np.nanmean(some, axis=0), mean, error)


def test_what_is_paid() -> None:
    paid = published(1.0).certified
    assert paid is not None
    assert round(paid, 2) == 68.59
    for epsilon in (1.0, 4.0, 8.0, paid):
        exact, *on_grids, one, other = (sender.certified for sender in honest_senders(epsilon))
        assert exact == pytest.approx(epsilon, abs=1e-6)
        assert all(each is not None and epsilon - 1e-4 <= each <= epsilon for each in on_grids)
        assert one is other is None
    rows = list(settings([1.0], [1.0]))
    assert [row.sender.name for row in rows].count("sampled vector") == 2
    for row in rows[-5:]:
        assert row.sender.nominal <= paid < row.sender.nominal + 0.002


def test_learners_learn_what_is_there() -> None:
    train, test = split(2)
    held = population(train, 1500, 2)
    reports = receive(NO_PRIVACY, math.inf, held, 1)
    assert centroids(reports, test) > 0.7
    assert logistic(reports, test) > 0.8
    # Labels that say nothing teach nothing.
    shuffled = np.random.default_rng(SEED).integers(0, LABELS, size=1500)
    assert logistic(Reports(held.features, shuffled, 1.0, 0.0), test) < 0.45


def test_centroids_undo_the_randomization_of_labels() -> None:
    """All labels but one in five are noise, which moves every plain mean towards the others."""
    train, test = split(3)
    held = population(train, N, 3)
    reports = receive(NO_PRIVACY, 1.0, held, SEED)
    assert (reports.labels != held.labels).mean() > 0.7
    assert centroids(reports, test) > 0.7


def test_no_image_is_learned_from_and_tested_with() -> None:
    train, test = split(4)
    assert (len(train.labels), len(test.labels)) == (1347, 450)
    # The data set has a few images twice; pooled, equal ones are still rare.
    known = {row.tobytes() for row in train.features}
    assert sum(row.tobytes() in known for row in test.features) <= 2
    assert train.features.min() >= 0
    assert train.features.max() <= 1


@pytest.mark.slow
def test_a_small_run() -> None:
    results = run(1500, [1, 2], [8.0], [1.0])
    by_name: dict[str, Result] = {result.sender.name: result for result in results}
    assert len(by_name["no privacy"].centroids) == 2
    assert by_name["no privacy"].errors == pytest.approx([0, 0])
    lines = table(results).splitlines()
    assert len(lines) == len(results) + 2
    assert any(line.startswith("f-RR, as published  8        484.306") for line in lines)
    again = run(1500, [1], [8.0], [])
    assert again[1].centroids == results[1].centroids[:1]


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    result = Result(published(2.0), 2.0, [0.04], [0.5], [0.25])
    monkeypatch.setattr(command, "run", lambda *_: [result])
    monkeypatch.setattr("sys.argv", ["learning", "--clients", "50"])
    command.main()
    printed = capsys.readouterr().out
    assert "0.2000  50.0       25.0" in printed
    assert "50 clients" in printed
