"""Run the benchmarks: all of them, or those named on the command line.

``make bench`` runs them all; ``python -m benchmarks step run`` runs two.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import sys

NAMES = (
    "kernels",
    "variance",
    "linking",
    "step",
    "run",
    "growth",
    "costs",
    "signatures",
    "kafka",
    "flink",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"which to run, of {', '.join(NAMES)}; default all")
    names = parser.parse_args().name or list(NAMES)
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are {', '.join(NAMES)}")
    print(f"Python {platform.python_version()}, {platform.machine()}, {platform.system()}")
    for name in names:
        print(f"\n== {name}", flush=True)
        importlib.import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
