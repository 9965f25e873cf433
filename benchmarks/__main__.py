"""Run the benchmarks: all of them, or those named on the command line.

``make bench`` runs them all; ``python -m benchmarks step run`` runs two.
"""

from __future__ import annotations

import argparse
import importlib
import platform

#: Where each is: a module, and a function if it is not its ``main``.
BENCHMARKS = {
    "kernels": "kernels",
    "variance": "variance",
    "experiments": "experiments",
    "strings": "strings",
    "linking": "linking",
    "alerts": "alerts",
    "step": "step",
    "run": "run",
    "growth": "run.growth",
    "costs": "run.costs",
    "signatures": "signatures",
    "replay": "replay",
    "collect": "collect",
    "results": "results",
    "small": "small",
    "web": "web",
    "kafka": "kafka",
    "flink": "flink",
    "oblivious": "oblivious",
    "poisoning": "poisoning",
}


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
        module, _, function = BENCHMARKS[name].partition(".")
        getattr(importlib.import_module(f"benchmarks.{module}"), function or "main")()


if __name__ == "__main__":
    main()
