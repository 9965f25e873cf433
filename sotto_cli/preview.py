"""Show what a device has sent and what is still to be sent, in plain words.

A device's file is read, not changed, and may be in use. First comes its ledger: what was agreed,
spent and set aside, and what became of each level. Then comes every answer that is still to be
sent, when, and what it says. Answers are randomized: the true values are not in the file. Top
items that an app is counting now are in its memory alone, and are not shown.

examples:
  sotto preview app/telemetry.db
      for the person at the device; times are in UTC
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("device", type=Path, help="a device's state file")


def run(args: argparse.Namespace) -> None:
    from clientsdk.ledger import read_file
    from clientsdk.preview import preview_file
    from sotto.clocks import now_ms

    print(read_file(args.device).in_words())
    print()
    print(preview_file(args.device, now_ms()).in_words())
