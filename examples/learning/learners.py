"""Models that are trained at the server, from reports alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from examples.learning.data import LABELS, Images


@dataclass(frozen=True, eq=False)
class Reports:
    """What the server sees of all clients.

    Attributes
    ----------
    features : ndarray, shape (n, d), float64
        Unbiased, or as published; NaN where a client says nothing.
    labels : ndarray, shape (n,), int64
        Randomized.
    keep, move : float
        Probability that a label is the true one, and that it is a given other one.
    """

    features: NDArray[np.float64]
    labels: NDArray[np.int64]
    keep: float
    move: float

    @property
    def centre(self) -> NDArray[np.float64]:
        """The mean of each feature."""
        centre: NDArray[np.float64] = np.nanmean(self.features, axis=0)
        return centre

    @property
    def filled(self) -> NDArray[np.float64]:
        """Features from which the centre is taken: unbiased, and zero where nothing is said."""
        said = ~np.isnan(self.features)
        scale = said.shape[0] / said.sum(axis=0)
        filled: NDArray[np.float64] = np.where(said, (self.features - self.centre) * scale, 0.0)
        return filled


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
    return accuracy(scores.argmax(axis=1), test)


def logistic(reports: Reports, test: Images) -> float:
    """Fit logistic regression to the reports as if nothing were randomized; return the accuracy."""
    filled = reports.filled
    scale = filled.std()
    model = LogisticRegression(max_iter=300, tol=1e-3)
    model.fit(filled / scale, reports.labels)
    guesses = model.predict((test.features - reports.centre) / scale)
    return accuracy(np.asarray(guesses), test)


def accuracy(guesses: NDArray[np.int64], test: Images) -> float:
    """Return the share of images that are read as what they show."""
    return float((guesses == test.labels).mean())
