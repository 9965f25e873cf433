"""Write results as one HTML file: the pages of sotto serve, one below the other.

The file fetches nothing and has no script, so that it can be sent and kept. Every metric is shown
in its newest window that is not withheld, beside all of its windows. --public leaves out what is
not meant for the public: what was rejected, what pseudonyms have spent, and how the job is.

examples:
  sotto report --state build/state --out report.html
      what sotto serve --state build/state shows
  sotto report --state build/state --public --out public/index.html
      estimates and plans alone
"""

from __future__ import annotations

import argparse
from functools import partial

from sotto.errors import ParameterError
from sotto_cli import options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_results(parser)
    add = partial(options.add, parser)
    add("--out FILE", "the file to write; one that is there is replaced", required=True)
    add("--public", "show only what is meant for the public")


def run(args: argparse.Namespace) -> None:
    from pipelines.web.rendering import write_static_file

    options.quiet_libraries()
    others = (".pdf", ".docx", ".md", ".txt", ".csv", ".json")
    if str(args.out) == "-" or args.out.suffix.lower() in others:
        raise ParameterError(f"--out {args.out} would be HTML: name it *.html")
    write_static_file(options.reader_of(args), args.out, args.state, public=args.public)
    print(args.out)
