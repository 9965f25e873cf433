"""How long peers take for what we do: one value a call, many values at once, many reports.

*single*: drawn from the operating system's CSPRNG. opendp draws from one too; the others draw from
numpy's or Python's generators, which protect nobody: they are here for scale.

*bulk*: no peer has vectorised clients; each is called once a value. Aggregation starts from reports
as each package hands them out and ends with an estimate of every value's share.

*broken*: peers that do not do what they say, shown by running them; they are not timed as if they
did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import race
from benchmarks.peers.sdk.report import Rows, show
from mechanisms.base import Mechanism
from mechanisms.coins import bloom_positions
from mechanisms.randomness import SystemSource
from mechanisms.registry import build

Work = Callable[[], object]

ID = bytes(range(16))
STRING = b"a string to hash"
OURS = 1_000_000
#: The peers are slow: fewer values for them, and the time a value compared.
THEIRS = 2_000
DRAWS = 1000


def compare(
    work: str, seconds: Mapping[str, float], unit: tuple[str, float], times: float, peer: str = ""
) -> None:
    """Print what each contender takes, also as a multiple of a peer's, by default the fastest's.

    ``seconds`` are for one unit of work, Sotto's first, which is to be so many ``times`` faster;
    ``unit`` is the name of a unit of time, and how many of it a second has.
    """
    name, scale = unit
    ours, *others = seconds
    limits = {ours: 1 / times}
    rows: Rows = [(each, scale * taken, limits.get(each)) for each, taken in seconds.items()]
    show(f"{work}, {name}", rows, peer or min(others, key=seconds.__getitem__))


def one(name: str, ladder: int = 1_000_000, **parameters: object) -> Mechanism:
    """Return a mechanism with a single level."""
    return build({"name": name, **parameters}, [ladder], "m")


def _draw(symbol: object, mechanism: Mechanism) -> Work:
    """Return the draw of one report as a device makes it."""
    source = SystemSource()
    return lambda: mechanism.draw(symbol, ID, ID, source)


def single() -> None:
    """Time a draw of mechanisms that a peer also has."""
    import diffprivlib.mechanisms as diffprivlib
    import opendp.prelude as dp
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client
    from pure_ldp.frequency_oracles import DEClient

    dp.enable_features("contrib")
    bits = dp.m.make_randomized_response_bitvec(
        dp.bitvector_domain(max_weight=2), dp.discrete_distance(), f=0.5378828427399902
    )

    def hashed_bits() -> object:
        first, second = bloom_positions(STRING, 0, 2, 128)
        return bits((1 << first | 1 << second).to_bytes(16, "little"))

    binary = diffprivlib.Binary(epsilon=1.0, value0="no", value1="yes")
    flip = dp.m.make_randomized_response_bool(prob=0.7310585786300049)
    category = dp.m.make_randomized_response(list(range(100)), prob=0.02672935376)
    direct = DEClient(1.0, 100, lambda value: value)
    work: dict[str, dict[str, Work]] = {
        "binary response": {
            "sotto": _draw(1, one("grr", domain_size=2)),
            "opendp": lambda: flip(True),
            "diffprivlib": lambda: binary.randomise("yes"),
            "multi-freq-ldpy": lambda: GRR_Client(1, 2, 1.0),
        },
        "GRR, 100 values": {
            "sotto": _draw(5, one("grr", domain_size=100)),
            "opendp": lambda: category(5),
            "pure-ldp": lambda: direct.privatise(5),
            "multi-freq-ldpy": lambda: GRR_Client(5, 100, 1.0),
        },
        "RAPPOR, 128 bits, 2 hashes": {
            "sotto": _draw(STRING, one("rappor", 4_000_000, bits=128, hashes=2, cohorts=1)),
            "opendp": hashed_bits,
        },
    }
    print("one value a call")
    for what, contenders in work.items():
        times = 20 if what.startswith("RAPPOR") else 1
        compare(what, race(contenders), ("µs a value", 1e6), times, "opendp")


def _ids(n: int) -> NDArray[np.uint64]:
    return np.random.default_rng(1).integers(0, 2**63, (n, 2)).astype(np.uint64)


def _drawing(mechanism: Mechanism, values: NDArray[np.int64]) -> Work:
    """Return the vectorised draw of one report a value."""
    chains, source = _ids(len(values)), SystemSource()
    return lambda: mechanism.randomize(values, chains, chains, source)


def _counting(mechanism: Any, values: NDArray[np.int64]) -> Work:
    """Return the aggregation and estimation of one packed report a value."""
    chains, groups = _ids(len(values)), np.zeros(len(values), dtype=np.int64)
    drawn = mechanism.randomize(values, chains, chains, SystemSource())
    payloads = np.ascontiguousarray(drawn[:, 0])

    def run() -> object:
        return mechanism.frequencies(mechanism.accumulate(payloads, chains, chains, groups, 1))

    return run


def _each(function: Callable[[int], object], values: NDArray[np.int64]) -> Work:
    """Return a loop that calls a peer once a value."""
    listed = values[:THEIRS].tolist()

    def run() -> object:
        for value in listed:
            function(value)
        return None

    return run


def _server(make: Callable[[], Any], reports: list[Any], size: int) -> Work:
    """Return the aggregation of reports by a server of pure-ldp, and an estimate of every value."""

    def run() -> object:
        server = make()
        for report in reports:
            server.aggregate(report)
        return [server.estimate(value, suppress_warnings=True) for value in range(size)]

    return run


def _race(ours: Work, peers: Mapping[str, Work], n: int = OURS) -> dict[str, float]:
    """Time Sotto on ``n`` values beside peers on :data:`THEIRS`; seconds a value."""
    return race({"sotto": ours, **peers}, {"sotto": n, **dict.fromkeys(peers, THEIRS)})


def bulk() -> None:
    """Time the drawing of many reports, and the estimation from many."""
    _clients()
    _servers()


def _clients() -> None:
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Client
    from pure_ldp.frequency_oracles import DEClient, UEClient

    rng = np.random.default_rng(2)
    values, few = rng.integers(0, 100, OURS), rng.integers(0, 128, OURS // 5)
    direct = DEClient(1.0, 100, lambda value: value)
    print("many values at once")
    peers = {
        "pure-ldp": _each(direct.privatise, values),
        "multi-freq-ldpy": _each(lambda v: GRR_Client(v, 100, 1.0), values),
    }
    found = _race(_drawing(one("grr", domain_size=100), values), peers)
    compare("GRR, 100 values", found, ("ns a value", 1e9), 10)
    for name, optimal in (("sue", False), ("oue", True)):
        unary = UEClient(1.0, 128, optimal, lambda value: value)
        peers = {
            "pure-ldp": _each(unary.privatise, few),
            "multi-freq-ldpy": _each(lambda v, best=optimal: UE_Client(v, 128, 1.0, best), few),  # type: ignore[misc]
        }
        found = _race(_drawing(one(name, domain_size=128), few), peers, len(few))
        compare(f"{name.upper()}, 128 values", found, ("ns a value", 1e9), 5)


def _servers() -> None:
    import opendp.prelude as dp
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI
    from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI, LH_Client
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI
    from pure_ldp.frequency_oracles import DEServer, FastLHServer, LHServer, UEServer

    unit = ("ns a report", 1e9)
    rng = np.random.default_rng(3)
    print("from reports to estimates")
    values = rng.integers(0, 100, OURS)
    symbols = values[:THEIRS].tolist()
    peers: dict[str, Work] = {
        "pure-ldp": _server(lambda: DEServer(1.0, 100, lambda value: value), symbols, 100),
        "multi-freq-ldpy": lambda: GRR_Aggregator_MI(symbols, 100, 1.0),
    }
    found = _race(_counting(one("grr", domain_size=100), values), peers)
    compare("GRR, 100 values", found, unit, 30)

    values = rng.integers(0, 128, OURS)
    rows = list((rng.random((THEIRS, 128)) < 0.3).astype(np.float64))
    packed = [np.packbits(row.astype(np.uint8)).tobytes() for row in rows]
    peers = {
        "pure-ldp": _server(lambda: UEServer(1.0, 128, True, lambda value: value), rows, 128),
        "multi-freq-ldpy": lambda: UE_Aggregator_MI(rows, 1.0),
        "opendp": lambda: dp.m.debias_randomized_response_bitvec(packed, f=0.5),
    }
    found = _race(_counting(one("oue", domain_size=128), values), peers)
    compare("packed unary, 128 values", found, unit, 30)

    values = rng.integers(0, 1000, OURS)
    hashed = [LH_Client(int(value), 1000, 1.0) for value in values[: THEIRS // 20]]
    most = 1024
    options: dict[str, Any] = {"use_olh": True, "index_mapper": lambda value: value}
    matrix = FastLHServer(1.0, 1000, most, **options).hash_matrix
    quick = [(answer, seed % most) for answer, seed in hashed] * 20
    peers = {
        "pure-ldp": _server(lambda: LHServer(1.0, 1000, **options), hashed, 1000),
        "multi-freq-ldpy": lambda: LH_Aggregator_MI(hashed, 1000, 1.0),
        "pure-ldp FastLH": _server(
            lambda: FastLHServer(1.0, 1000, most, hash_matrix=matrix, **options), quick, 1
        ),
    }
    ours = _counting(one("local_hashing", domain_size=1000, buckets=3), values)
    units = {"sotto": OURS, **dict.fromkeys(peers, len(hashed)), "pure-ldp FastLH": len(quick)}
    found = race({"sotto": ours, **peers}, units)
    compare("OLH, 1000 values", found, unit, 100)


def broken() -> None:
    """Print the faults that still show with the installed versions."""
    from pure_ldp.frequency_oracles import RAPPORClient

    f = 0.5
    client = RAPPORClient(f, 8, [[lambda index: 0, lambda index: 1]], 1, lambda value: value)
    kept = sum(client.privatise(0)[0][0] for _ in range(DRAWS))
    if kept == DRAWS:
        print(
            f"pure-ldp RAPPORClient: reports a set bit as set with probability {1 - f / 2}; "
            f"reported it as set in {kept} of {DRAWS} draws: no privacy for set bits"
        )
