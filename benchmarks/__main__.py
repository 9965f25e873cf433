"""Run the benchmarks: all of them, or those named on the command line.

``make bench`` runs them all; ``python -m benchmarks step run`` runs two.
"""

from __future__ import annotations

import argparse
import importlib
import platform

BENCHMARKS = ("step", "run", "otel", "collect", "kafka", "flink")


def main() -> None:
    """Run them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    names = parser.parse_args().name or list(BENCHMARKS)
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        parser.error(f"no benchmark named {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    print(f"Python {platform.python_version()}, {platform.machine()}, {platform.system()}")
    for name in names:
        print(f"\n== {name}", flush=True)
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
