"""Every mechanism at every epsilon, several times: accuracy against what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from examples.learning.senders import DIMENSIONS, NO_PRIVACY, Sender, honest_senders, published
from mechanisms.category.grr import GeneralizedRandomizedResponse
from mechanisms.testing import SeededSource

LABELS = 10
#: Images of 8 × 8 pixels become images of so many by so many.
SIDE = math.isqrt(DIMENSIONS)
#: The label gets as much as the features, but not more than this, where 86 % of labels are true.
LABEL_EPSILON = 4.0


@dataclass(frozen=True, eq=False)
class Images:
    """Features in [0, 1], shape (n, 16), and which digit each image shows, shape (n,)."""

    features: NDArray[np.float64]
    labels: NDArray[np.int64]


def split(seed: int) -> tuple[Images, Images]:
    """Return scikit-learn's digits, coarser: to learn from and to test with, three to one."""
    digits = load_digits()
    cell = 8 // SIDE
    pooled = digits.images.reshape(-1, SIDE, cell, SIDE, cell).mean(axis=(2, 4)) / 16
    labels = digits.target.astype(np.int64)
    one, two, one_labels, two_labels = train_test_split(
        pooled.reshape(-1, DIMENSIONS), labels, test_size=0.25, random_state=seed, stratify=labels
    )
    return Images(one, one_labels), Images(two, two_labels)


def population(images: Images, clients: int, seed: int) -> Images:
    held = np.random.default_rng(seed).integers(0, len(images.labels), size=clients)
    return Images(images.features[held], images.labels[held])


@dataclass(frozen=True, eq=False)
class Reports:
    """What the server sees of all clients: unbiased features, NaN where none is reported; labels.

    A label is the true one with probability ``keep``, and a given other one with ``move``.
    """

    features: NDArray[np.float64]
    labels: NDArray[np.int64]
    keep: float
    move: float

    @property
    def centre(self) -> NDArray[np.float64]:
        centre: NDArray[np.float64] = np.nanmean(self.features, axis=0)
        return centre

    @property
    def filled(self) -> NDArray[np.float64]:
        """Features from which the centre is taken: unbiased, and zero where nothing is reported."""
        reported = ~np.isnan(self.features)
        scale = len(reported) / reported.sum(axis=0)
        filled: NDArray[np.float64] = np.where(reported, (self.features - self.centre) * scale, 0)
        return filled


def receive(sender: Sender, label_epsilon: float, clients: Images, seed: int) -> Reports:
    features = sender.send(clients.features, seed)
    if math.isinf(label_epsilon):
        return Reports(features, clients.labels, 1.0, 0.0)
    label = GeneralizedRandomizedResponse(label_epsilon, LABELS)
    labels = label.report(clients.labels, SeededSource(seed + 1))[:, 0].astype(np.int64)
    return Reports(features, labels, label.p, label.q)


def centroids(reports: Reports, test: Images) -> float:
    """Classify by the nearest mean of a digit, estimated without bias; return the accuracy.

    The mean of the features of digit c is that of (1[label = c] − move)/(keep − move) times the
    features, over the share of the digit. A coordinate's means are drawn together as far as they
    differ by noise alone (the estimate of its signal over signal and noise).
    """
    weights = (np.eye(LABELS)[reports.labels] - reports.move) / (reports.keep - reports.move)
    n, filled = len(weights), reports.filled
    shares = np.maximum(weights.mean(axis=0), 1 / (10 * LABELS))[:, None]
    means = weights.T @ filled / n / shares
    squares = (weights**2).T @ filled**2 / n / shares**2
    noise = np.maximum(squares - means**2, 0.0) / n
    scatter = (means**2).mean(axis=0)
    signal = np.maximum(scatter - noise.mean(axis=0), 0.0)
    means *= signal / np.maximum(scatter, np.finfo(float).tiny)
    scores = (test.features - reports.centre) @ means.T - (means**2).sum(axis=1) / 2
    return float((scores.argmax(axis=1) == test.labels).mean())


def logistic(reports: Reports, test: Images) -> float:
    """Fit logistic regression to the reports as if nothing were randomized; return the accuracy."""
    filled = reports.filled
    scale = filled.std()
    model = LogisticRegression(max_iter=300, tol=1e-3).fit(filled / scale, reports.labels)
    guesses = model.predict((test.features - reports.centre) / scale)
    return float((guesses == test.labels).mean())


@dataclass(frozen=True)
class Result:
    """How one mechanism did at one epsilon, seed by seed: squared errors, two accuracies."""

    sender: Sender
    label_epsilon: float
    errors: list[float] = field(default_factory=list)
    centroids: list[float] = field(default_factory=list)
    logistic: list[float] = field(default_factory=list)


def settings(epsilons: Sequence[float], nominals: Sequence[float]) -> Iterator[Result]:
    """Every mechanism at every epsilon, and at what f-RR really costs at its nominal amounts."""
    yield Result(NO_PRIVACY, math.inf)
    for epsilon in epsilons:
        for sender in (*honest_senders(epsilon), published(epsilon)):
            yield Result(sender, min(epsilon, LABEL_EPSILON))
    for nominal in nominals:
        frr = published(nominal)
        assert frr.certified is not None
        for sender in (frr, *honest_senders(math.floor(frr.certified * 1000) / 1000)):
            yield Result(sender, LABEL_EPSILON)


def run(
    clients: int, seeds: Sequence[int], epsilons: Sequence[float], nominals: Sequence[float]
) -> list[Result]:
    """Run all settings; each seed divides the images, hands them out and randomizes anew.

    ``epsilons`` are of the features, and of the label up to 4. At what ``nominals`` of f-RR really
    cost the others are run too.
    """
    results = list(settings(epsilons, nominals))
    for seed in seeds:
        train, test = split(seed)
        held = population(train, clients, seed)
        for number, result in enumerate(results):
            reports = receive(result.sender, result.label_epsilon, held, 1000 * seed + 2 * number)
            error = reports.centre - held.features.mean(axis=0)
            result.errors.append(float((error**2).mean()))
            result.centroids.append(centroids(reports, test))
            result.logistic.append(logistic(reports, test))
    return results


def table(results: Sequence[Result]) -> str:
    """Return the results as text; accuracies in per cent with their standard errors."""
    head = ("features by", "nominal", "certified", "label", "off by", "centroids", "logistic")
    rows = [head, *(_row(result) for result in results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in widths))
    lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _row(result: Result) -> tuple[str, ...]:
    sender = result.sender
    return (
        sender.name,
        _amount(sender.nominal),
        "-" if sender.certified is None else _amount(sender.certified),
        _amount(result.label_epsilon),
        f"{math.sqrt(np.mean(result.errors)):.4f}",
        _accuracy(result.centroids),
        _accuracy(result.logistic),
    )


def _amount(epsilon: float) -> str:
    return "none" if math.isinf(epsilon) else f"{epsilon:.6g}"


def _accuracy(shares: Sequence[float]) -> str:
    seen = 100 * np.array(shares)
    if len(seen) == 1:
        return f"{seen.mean():.1f}"
    return f"{seen.mean():.1f} ± {seen.std(ddof=1) / math.sqrt(len(seen)):.1f}"
