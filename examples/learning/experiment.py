"""Every mechanism at every epsilon, several times: accuracy against what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from examples.learning.data import LABELS, Images, population, split
from examples.learning.learners import Reports, centroids, logistic
from examples.learning.senders import Open, Published, Sender, honest_senders
from mechanisms.category.grr import GeneralizedRandomizedResponse
from mechanisms.testing import SeededSource

#: The label gets as much as the features, but not more than this, where 86 % of labels are true.
LABEL_EPSILON = 4.0


@dataclass(frozen=True)
class Result:
    """How one mechanism did at one epsilon, seed by seed.

    Attributes
    ----------
    sender : Sender
    label_epsilon : float
    errors : list of float
        Mean squared error of the mean of a feature over the clients.
    centroids, logistic : list of float
        Accuracy of the two learners.
    """

    sender: Sender
    label_epsilon: float
    errors: list[float] = field(default_factory=list)
    centroids: list[float] = field(default_factory=list)
    logistic: list[float] = field(default_factory=list)


def receive(sender: Sender, label_epsilon: float, clients: Images, seed: int) -> Reports:
    """Let every client send his features and his label once."""
    features = sender.send(clients.features, seed)
    if math.isinf(label_epsilon):
        return Reports(features, clients.labels, 1.0, 0.0)
    label = GeneralizedRandomizedResponse(label_epsilon, LABELS)
    labels = label.report(clients.labels, SeededSource(seed + 1))[:, 0].astype(np.int64)
    return Reports(features, labels, label.p, label.q)


def settings(epsilons: Sequence[float], published: Sequence[float]) -> Iterator[Result]:
    """Every mechanism at every epsilon, and at what f-RR really costs at its nominal amounts."""
    yield Result(Open(), math.inf)
    for epsilon in epsilons:
        for sender in (*honest_senders(epsilon), Published(epsilon)):
            yield Result(sender, min(epsilon, LABEL_EPSILON))
    for nominal in published:
        frr = Published(nominal)
        assert frr.certified is not None
        real = math.floor(frr.certified * 1000) / 1000
        for sender in (frr, *honest_senders(real)):
            yield Result(sender, LABEL_EPSILON)


def run(
    clients: int, seeds: Sequence[int], epsilons: Sequence[float], published: Sequence[float]
) -> list[Result]:
    """Run all settings.

    Parameters
    ----------
    clients : int
        Each holds one image and reports once.
    seeds : sequence of int
        Each divides the images anew, hands them out anew and randomizes anew.
    epsilons : sequence of float
        Of the features; the label has the same, up to 4.
    published : sequence of float
        Nominal amounts of f-RR, at whose certified amounts the others are run too.
    """
    results = list(settings(epsilons, published))
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
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def _row(result: Result) -> tuple[str, ...]:
    sender = result.sender
    certified = "-" if sender.certified is None else _amount(sender.certified)
    return (
        sender.name,
        _amount(sender.nominal),
        certified,
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
