"""One value a call, drawn from the operating system's CSPRNG, against peers one value a call.

opendp draws from a CSPRNG too. The others draw from numpy's or Python's generators, which protect
nobody: they are here for scale.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.peers.clock import race
from benchmarks.peers.table import Line, Target, show
from mechanisms.coins import bloom_positions
from mechanisms.randomness import SystemSource
from mechanisms.registry import LadderedMechanism, build

ID = bytes(range(16))
STRING = b"a string to hash"


def ours(mechanism: LadderedMechanism, symbol: object) -> Callable[[], object]:
    """Return the draw of one report as a device makes it."""
    source = SystemSource()
    return lambda: mechanism.draw(symbol, ID, ID, source)


def one(name: str, ladder: int = 1_000_000, **parameters: object) -> LadderedMechanism:
    """Return a mechanism with a single level."""
    return build({"name": name, **parameters}, [ladder], "m")


def measure() -> list[Line]:
    """Time a draw of every mechanism that a peer also has."""
    import diffprivlib.mechanisms as diffprivlib
    import opendp.prelude as dp
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client
    from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Client
    from multi_freq_ldpy.pure_frequency_oracles.SS import SS_Client
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Client
    from pure_ldp.frequency_oracles import DEClient, LHClient, UEClient

    dp.enable_features("contrib")
    bits = dp.m.make_randomized_response_bitvec(
        dp.bitvector_domain(max_weight=2), dp.discrete_distance(), f=0.5378828427399902
    )
    filled = one("rappor", 4_000_000, bits=128, hashes=2, cohorts=1)

    def hashed_bits() -> object:
        first, second = bloom_positions(STRING, 0, 2, 128)
        return bits((1 << first | 1 << second).to_bytes(16, "little"))

    binary = diffprivlib.Binary(epsilon=1.0, value0="no", value1="yes")
    flip = dp.m.make_randomized_response_bool(prob=0.7310585786300049)
    category = dp.m.make_randomized_response(list(range(100)), prob=0.02672935376)
    direct = DEClient(1.0, 100, lambda value: value)
    unary = UEClient(1.0, 128, True, lambda value: value)
    hashed = LHClient(1.0, 1000, use_olh=True, index_mapper=lambda value: value)
    work: dict[str, dict[str, Callable[[], object]]] = {
        "binary response": {
            "sotto": ours(one("grr", domain_size=2), 1),
            "opendp": lambda: flip(True),
            "diffprivlib": lambda: binary.randomise("yes"),
            "multi-freq-ldpy": lambda: GRR_Client(1, 2, 1.0),
        },
        "GRR, 100 values": {
            "sotto": ours(one("grr", domain_size=100), 5),
            "opendp": lambda: category(5),
            "pure-ldp": lambda: direct.privatise(5),
            "multi-freq-ldpy": lambda: GRR_Client(5, 100, 1.0),
        },
        "RAPPOR, 128 bits, 2 hashes": {
            "sotto": ours(filled, STRING),
            "opendp": hashed_bits,
        },
        "OUE, 128 values": {
            "sotto": ours(one("oue", domain_size=128), 5),
            "pure-ldp": lambda: unary.privatise(5),
            "multi-freq-ldpy": lambda: UE_Client(5, 128, 1.0, True),
        },
        "OLH, 1000 values": {
            "sotto": ours(one("local_hashing", domain_size=1000, buckets=3), 5),
            "pure-ldp": lambda: hashed.privatise(5),
            "multi-freq-ldpy": lambda: LH_Client(5, 1000, 1.0),
        },
        "subset selection, 100 values": {
            "sotto": ours(one("subset", domain_size=100, subset_size=27), 5),
            "multi-freq-ldpy": lambda: SS_Client(5, 100, 1.0),
        },
    }
    return [Line(what, race(contenders)) for what, contenders in work.items()]


def main() -> None:
    """Print the table: microseconds a value."""
    targets = {"RAPPOR, 128 bits, 2 hashes": Target("opendp", 20)}
    show("one value a call", measure(), ("µs a value", 1e6), targets, Target("opendp", 1))
