"""Run the benchmarks: all of them, or those named on the command line.

``make bench`` runs them all; ``python -m benchmarks step run`` runs two.
"""

from __future__ import annotations

import argparse
import importlib
import platform

BENCHMARKS = ("step", "run", "collect", "kafka", "flink")


def main() -> None:
    """Run them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", choices=("all", *BENCHMARKS), default="all")
    named = parser.parse_args().name
    print(f"Python {platform.python_version()}, {platform.machine()}, {platform.system()}")
    for name in BENCHMARKS if "all" in named else named:
        print(f"\n== {name}", flush=True)
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
