"""Checks the SDK against the vectors of ``docs/spec/protocol.md``: ``python -m tests.conformance``.

Prints a line for each file. The exit status is 1 if a vector fails.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.conformance import (
    draws,
    exchange,
    identities,
    measures,
    plans,
    scenarios,
    segments,
    values,
)

#: Failures of a file that are printed.
_SHOWN = 5


class Part(NamedTuple):
    #: Checks one vector after another: what is wrong with it, or None.
    check: Callable[[], Iterator[str | None]]
    #: Writes its file, and perhaps others; None if another part does.
    write: Callable[[], None] | None


#: In the order in which they are written: later ones read earlier ones.
PARTS = {
    "plans": Part(plans.check, plans.write),
    "samplers": Part(plans.check_samplers, None),
    "values": Part(values.check, values.write),
    "draws": Part(draws.check, draws.write),
    "identities": Part(identities.check, identities.write),
    "messages": Part(identities.check_messages, identities.write_messages),
    "segments": Part(segments.check, segments.write),
    **{
        name: Part(partial(scenarios.check, name), partial(scenarios.write, name))
        for name in ("ledger", "outbox", "guard")
    },
    "measures": Part(measures.check, measures.write),
    "exchange": Part(exchange.check, exchange.write),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description="Check the SDK against the vectors of docs/spec/protocol.md.",
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="such as draws.json; all, if none")
    parser.add_argument("--write", action="store_true", help="write the files anew from the SDK")
    args = parser.parse_args(arguments)
    logging.getLogger("clientsdk").addHandler(logging.NullHandler())
    names = [Path(name).name.removesuffix(".json") for name in args.files] or list(PARTS)
    for name in names:
        if name not in PARTS:
            parser.error(f"there is no file {name}.json; there are {', '.join(PARTS)}")
    failed = False
    for name in names:
        part = PARTS[name]
        if args.write and part.write is not None:
            part.write()
        found = list(part.check())
        wrong = [each for each in found if each is not None]
        failed = failed or bool(wrong) or not found
        print(f"{name}.json: {len(found) - len(wrong)} of {len(found)} vectors pass")
        for each in wrong[:_SHOWN]:
            print(f"  {each}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
