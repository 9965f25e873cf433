"""Run all comparisons with peers, or those named: ``python -m benchmarks.peers single error``."""

from __future__ import annotations

import argparse
import importlib
import sys
from importlib.metadata import version

NAMES = ("broken", "single", "bulk", "error", "sdk")
PEERS = ("pure-ldp", "multi-freq-ldpy", "opendp", "diffprivlib")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"which to run, of {', '.join(NAMES)}; default all")
    names = parser.parse_args().name or list(NAMES)
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        parser.error(f"no comparison named {', '.join(unknown)}; there are {', '.join(NAMES)}")
    print(", ".join(f"{peer} {version(peer)}" for peer in PEERS))
    for name in names:
        print(f"\n== {name}", flush=True)
        importlib.import_module(f"benchmarks.peers.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
