"""Scikit-learn's digits, made coarser in public, and clients that hold one image each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

LABELS = 10
#: Images of 8 × 8 pixels become images of so many by so many.
SIDE = 4
DIMENSIONS = SIDE * SIDE


@dataclass(frozen=True, eq=False)
class Images:
    """Images as features in [0, 1], and which digit each one shows.

    Attributes
    ----------
    features : ndarray, shape (n, 16), float64
    labels : ndarray, shape (n,), int64
    """

    features: NDArray[np.float64]
    labels: NDArray[np.int64]


def split(seed: int) -> tuple[Images, Images]:
    """Return images to learn from and images to test with, three to one."""
    digits = load_digits()
    cell = 8 // SIDE
    pooled = digits.images.reshape(-1, SIDE, cell, SIDE, cell).mean(axis=(2, 4)) / 16
    features = pooled.reshape(-1, DIMENSIONS)
    labels = digits.target.astype(np.int64)
    one, two, one_labels, two_labels = train_test_split(
        features, labels, test_size=0.25, random_state=seed, stratify=labels
    )
    return Images(one, one_labels), Images(two, two_labels)


def population(images: Images, clients: int, seed: int) -> Images:
    """Give each of ``clients`` one image, drawn with replacement: some hold the same one."""
    held = np.random.default_rng(seed).integers(0, len(images.labels), size=clients)
    return Images(images.features[held], images.labels[held])
