"""Learning to read digits from randomized reports alone: ``python -m examples.learning``.

Every client holds one small image of a digit and sends its 16 features and its label once, each
randomized. The server learns the mean image of each digit, and reads images that no client holds by
the nearest mean. Beside a mechanism of plans stands f-RR, whose paper (BitRand) claims an
epsilon that is not what it costs: the last row gives the other as much as it really costs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from mechanisms.arrays import Floats, Ints
from mechanisms.category.grr import GeneralizedRandomizedResponse
from mechanisms.testing import SeededSource
from mechanisms.vector.sampled_hybrid import SampledHybrid
from papers.bitrand import FeatureRandomizedResponse

DIGITS, DIMENSIONS = 10, 16
PLAIN, OURS, PUBLISHED = "features as they are", "sampled Hybrid", "f-RR, as published"
#: The setting of its paper: ten bits a feature, five of them before the point.
frr = partial(FeatureRandomizedResponse, features=DIMENSIONS, bits=10, integer_bits=5)
#: The label gets as much as the features, but not more than this, where 86 % of labels are true.
LABEL_EPSILON = 4.0


def mean_images(name: str, epsilon: float, held: Floats, said: Ints, seed: int) -> Floats:
    """Return the mean features of the clients that said each label, ``(10, 16)``, as estimated."""
    source = SeededSource(seed)
    if name == PUBLISHED:
        limit = frr(epsilon).encoding.limit
        bits = frr(epsilon).randomize((2 * held - 1) * limit, source)
        held = frr(epsilon).decode(bits) / (2 * limit) + 0.5
    if name in (PLAIN, PUBLISHED):
        return np.array([held[said == digit].mean(axis=0) for digit in range(DIGITS)])
    mechanism = SampledHybrid(epsilon, DIMENSIONS)
    ids = source.words(2 * len(held)).reshape(-1, 2)
    payloads = np.ascontiguousarray(mechanism.randomize(held, ids, ids, source)[:, 0])
    counts = mechanism.accumulate(payloads, ids, ids, said, DIGITS)
    return np.array([[one.value for one in mechanism.means(row[None])] for row in counts])


def accuracy(name: str, epsilon: float, clients: int, seed: int) -> float:
    """Return the share of unseen images that are read rightly."""
    pixels, shown = load_digits(return_X_y=True)
    images = pixels.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, DIMENSIONS) / 16
    train, test, known, asked = train_test_split(images, shown, random_state=seed, stratify=shown)
    mine = np.random.default_rng(seed).integers(0, len(known), size=clients)
    label = GeneralizedRandomizedResponse(min(epsilon, LABEL_EPSILON), DIGITS)
    said = label.report(known[mine], SeededSource(seed + 1))[:, 0].astype(np.int64)
    heard = np.bincount(said, minlength=DIGITS)[:, None]
    sums = heard * mean_images(name, epsilon, train[mine], said, seed + 2)
    # Each other label is said with probability q: take what it brings away from counts and sums.
    holders = np.maximum((heard - label.q * clients) / (label.p - label.q), clients / 100)
    means = (sums - label.q * sums.sum(axis=0)) / (label.p - label.q) / holders
    scores = test @ means.T - (means**2).sum(axis=1) / 2
    return float((scores.argmax(axis=1) == asked).mean())


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the accuracy at rising epsilons, nominal and certified."""
    parser = argparse.ArgumentParser(prog="python -m examples.learning")
    parser.add_argument("--clients", type=int, default=60_000, help="how many clients report")
    parser.add_argument("--seeds", type=int, default=6, help="how often all is repeated")
    options = parser.parse_args(arguments)
    rows = [(PLAIN, LABEL_EPSILON, math.inf)]
    for nominal in (1.0, 2.0, 4.0, 8.0):
        rows.append((OURS, nominal, nominal))
        rows.append((PUBLISHED, nominal, frr(nominal).certified_epsilon))
    rows.append((OURS, frr(1.0).certified_epsilon, frr(1.0).certified_epsilon))
    print("features by           nominal  certified  read rightly, %")
    for name, nominal, certified in rows:
        seeds = range(options.seeds)
        found = 100 * np.mean([accuracy(name, nominal, options.clients, seed) for seed in seeds])
        print(f"{name:20}  {nominal:7.4g}  {certified:9.4g}  {found:15.1f}")


if __name__ == "__main__":
    main()
