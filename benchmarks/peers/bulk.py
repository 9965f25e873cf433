"""Many values at once, and many reports turned into estimates.

No peer has vectorised clients; each is called once a value. Aggregation starts from reports as each
package hands them out and ends with an estimate of every value's share.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.clock import Timing, race
from benchmarks.peers.single import one
from benchmarks.peers.table import FASTEST, Line, Target, show
from mechanisms.base import Mechanism
from mechanisms.randomness import SystemSource

OURS = 1_000_000
#: The peers are slow: fewer values for them, and the time a value compared.
THEIRS = 2_000


def ids(n: int) -> NDArray[np.uint64]:
    """Return ``(n, 2)`` identifiers, as chain ids are."""
    return np.random.default_rng(1).integers(0, 2**63, (n, 2)).astype(np.uint64)


def drawing(mechanism: Mechanism, values: NDArray[np.int64]) -> Callable[[], object]:
    """Return the vectorised draw of one report a value."""
    chains, source = ids(len(values)), SystemSource()
    return lambda: mechanism.randomize(values, chains, chains, source)


def counting(mechanism: Any, values: NDArray[np.int64]) -> Callable[[], object]:
    """Return the aggregation and estimation of one packed report a value."""
    chains = ids(len(values))
    payloads = np.ascontiguousarray(
        mechanism.randomize(values, chains, chains, SystemSource())[:, 0]
    )
    groups = np.zeros(len(values), dtype=np.int64)

    def run() -> object:
        return mechanism.frequencies(mechanism.accumulate(payloads, chains, chains, groups, 1))

    return run


def each(function: Callable[[int], object], values: NDArray[np.int64]) -> Callable[[], object]:
    """Return a loop that calls a peer once a value."""
    given = values.tolist()

    def run() -> object:
        for value in given:
            function(value)
        return None

    return run


def compare(
    ours: Callable[[], object], peers: dict[str, Callable[[], object]], n: int = OURS
) -> list[Timing]:
    """Time Sotto on ``n`` values beside peers on :data:`THEIRS`; seconds a value."""
    return race({"sotto": ours, **peers}, {"sotto": n, **dict.fromkeys(peers, THEIRS)})


def clients() -> list[Line]:
    """Time the drawing of many reports."""
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Client
    from pure_ldp.frequency_oracles import DEClient, UEClient

    rng = np.random.default_rng(2)
    values = rng.integers(0, 100, OURS)
    direct = DEClient(1.0, 100, lambda value: value)
    lines = [
        Line(
            "GRR, 100 values",
            compare(
                drawing(one("grr", domain_size=100), values),
                {
                    "pure-ldp": each(direct.privatise, values[:THEIRS]),
                    "multi-freq-ldpy": each(lambda v: GRR_Client(v, 100, 1.0), values[:THEIRS]),
                },
            ),
        )
    ]
    few = rng.integers(0, 128, OURS // 5)
    for name, optimal in (("sue", False), ("oue", True)):
        unary = UEClient(1.0, 128, optimal, lambda value: value)
        lines.append(
            Line(
                f"{name.upper()}, 128 values",
                compare(
                    drawing(one(name, domain_size=128), few),
                    {
                        "pure-ldp": each(unary.privatise, few[:THEIRS]),
                        "multi-freq-ldpy": each(
                            partial(_unary_client, UE_Client, optimal), few[:THEIRS]
                        ),
                    },
                    len(few),
                ),
            )
        )
    return lines


def _unary_client(client: Callable[..., object], optimal: bool, value: int) -> object:
    return client(value, 128, 1.0, optimal)


def servers() -> list[Line]:
    """Time the estimation from many reports."""
    return [_grr(), _unary(), _hashing()]


def _grr() -> Line:
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI
    from pure_ldp.frequency_oracles import DEServer

    values = np.random.default_rng(3).integers(0, 100, OURS)
    reports = values[:THEIRS].tolist()

    def direct() -> object:
        server = DEServer(1.0, 100, lambda value: value)
        for report in reports:
            server.aggregate(report)
        return [server.estimate(value, suppress_warnings=True) for value in range(100)]

    peers = {"pure-ldp": direct, "multi-freq-ldpy": lambda: GRR_Aggregator_MI(reports, 100, 1.0)}
    return Line("GRR, 100 values", compare(counting(one("grr", domain_size=100), values), peers))


def _unary() -> Line:
    import opendp.prelude as dp
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI
    from pure_ldp.frequency_oracles import UEServer

    rng = np.random.default_rng(4)
    values = rng.integers(0, 128, OURS)
    rows = list((rng.random((THEIRS, 128)) < 0.3).astype(np.float64))
    packed = [np.packbits(row.astype(np.uint8)).tobytes() for row in rows]

    def unary() -> object:
        server = UEServer(1.0, 128, True, lambda value: value)
        for row in rows:
            server.aggregate(row)
        return [server.estimate(value, suppress_warnings=True) for value in range(128)]

    peers: dict[str, Callable[[], object]] = {
        "pure-ldp": unary,
        "multi-freq-ldpy": lambda: UE_Aggregator_MI(rows, 1.0),
        "opendp": lambda: dp.m.debias_randomized_response_bitvec(packed, f=0.5),
    }
    ours = counting(one("oue", domain_size=128), values)
    return Line("packed unary, 128 values", compare(ours, peers))


def _hashing() -> Line:
    from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI, LH_Client
    from pure_ldp.frequency_oracles import FastLHServer, LHServer

    values = np.random.default_rng(5).integers(0, 1000, OURS)
    reports = [LH_Client(int(value), 1000, 1.0) for value in values[: THEIRS // 20]]
    most = 1024

    def hashed() -> object:
        server = LHServer(1.0, 1000, use_olh=True, index_mapper=lambda value: value)
        for report in reports:
            server.aggregate(report)
        return [server.estimate(value, suppress_warnings=True) for value in range(1000)]

    table = FastLHServer(1.0, 1000, most, use_olh=True, index_mapper=lambda value: value)
    quick = [(answer, seed % most) for answer, seed in reports] * 20

    def heuristic() -> object:
        server = FastLHServer(
            1.0, 1000, most, use_olh=True, index_mapper=lambda v: v, hash_matrix=table.hash_matrix
        )
        for report in quick:
            server.aggregate(report)
        return server.estimate(0, suppress_warnings=True)

    ours = counting(one("local_hashing", domain_size=1000, buckets=3), values)
    slow = {
        "pure-ldp": hashed,
        "multi-freq-ldpy": lambda: LH_Aggregator_MI(reports, 1000, 1.0),
    }
    units = {"sotto": OURS, **dict.fromkeys(slow, len(reports)), "pure-ldp FastLH": len(quick)}
    return Line(
        "OLH, 1000 values", race({"sotto": ours, **slow, "pure-ldp FastLH": heuristic}, units)
    )


def main() -> None:
    """Print both tables: nanoseconds a value or report."""
    show(
        "many values at once",
        clients(),
        ("ns a value", 1e9),
        {"GRR, 100 values": Target(FASTEST, 10)},
        Target(FASTEST, 5),
    )
    show(
        "from reports to estimates",
        servers(),
        ("ns a report", 1e9),
        {"OLH, 1000 values": Target(FASTEST, 100)},
        Target(FASTEST, 30),
    )
