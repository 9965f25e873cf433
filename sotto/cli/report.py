"""Write results as one HTML file: the pages of sotto serve, one below the other.

The file fetches nothing and has no script, so that it can be sent and kept. Every metric is shown
in its newest window that is not withheld, beside all of its windows. --public leaves out what is
not meant for the public: what was rejected, what pseudonyms have spent, and how the job is.
"""

from __future__ import annotations

import argparse
import os
from functools import partial

from sotto.cli import options
from sotto.cli.serve import add_results, reader_of

HELP = "write results as one HTML file"

EXAMPLES = """\
examples:
  sotto report --state build/state --out report.html
      what sotto serve --state build/state shows
  sotto report --state build/state --public --out public/index.html
      estimates and plans alone
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_results(parser)
    add = partial(options.add, parser)
    add("--out FILE", "the file to write; one that is there is replaced", required=True)
    add("--public", "show only what is meant for the public")


def run(args: argparse.Namespace) -> int:
    from pipelines.web.rendering import static_file
    from pipelines.web.snapshot import Snapshot

    options.quiet_libraries()
    reader = reader_of(args)
    snapshot = Snapshot(reader, reader.revision(), args.state)
    text = static_file(snapshot, public=args.public)
    # Nobody sees half of it.
    partial_file = args.out.with_name(f".{args.out.name}.{os.getpid()}")
    try:
        partial_file.write_text(text, "utf-8")
        partial_file.replace(args.out)
    finally:
        partial_file.unlink(missing_ok=True)
    print(args.out)
    return 0
