"""Flink's client: reads an order from standard input, submits the job and prints its id.

It runs in the environment that has PyFlink; :mod:`pipelines.flink.launch` starts it.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from pipelines.flink.orders import Order


def main() -> int:
    """Submit a job and return the exit status."""
    order = Order.from_json(sys.stdin.read())
    found = find_spec("pyflink")
    if found is not None and found.origin is not None:
        # Without a home PyFlink overwrites where the other folders are said to be.
        os.environ.setdefault("FLINK_HOME", os.path.dirname(found.origin))
    from pipelines.flink.graph import submit

    print(submit(order))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
