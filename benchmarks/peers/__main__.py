"""Run all comparisons with peers, or those named: ``python -m benchmarks.peers single error``."""

from __future__ import annotations

import argparse
from importlib.metadata import version

PEERS = ("pure-ldp", "multi-freq-ldpy", "opendp", "diffprivlib")


def main() -> None:
    """Run them."""
    from benchmarks.peers import sdk, speed

    comparisons = {
        "broken": speed.broken,
        "single": speed.single,
        "bulk": speed.bulk,
        "sdk": sdk.main,
    }
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("name", nargs="*", choices=("all", *comparisons), default="all")
    named = parser.parse_args().name
    print(", ".join(f"{peer} {version(peer)}" for peer in PEERS))
    for name in comparisons if "all" in named else named:
        print(f"\n== {name}", flush=True)
        comparisons[name]()


if __name__ == "__main__":
    main()
