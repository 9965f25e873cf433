"""Show what a device, or a pseudonym, has spent, chain by chain.

A device's file has what the device has reserved and spent; it is read, not changed, and may be
in use. The aggregator's state has what it has counted and seen of one pseudonym. Once everything
is delivered, what a device has spent in a budget period is what the aggregator counts of it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from clientsdk.wording import day, minute
from sotto.cli.format import table
from sotto.errors import ParameterError

if TYPE_CHECKING:
    from clientsdk.ledger import Ledger, LedgerPeriod
    from pipelines.storage.ledger import PseudonymLedger

HELP = "show what a device or a pseudonym has spent"

EXAMPLES = """\
examples:
  sotto ledger app/telemetry.db
      consent, ceilings, what each budget period cost, and what is still to be released
  sotto ledger --state build/state --pseudonym 0f3c...
      the chains of one pseudonym as the aggregator has them
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``sotto ledger``."""
    parser.add_argument("device", nargs="?", type=Path, help="a device's state file")
    parser.add_argument(
        "--state", type=Path, metavar="DIR", help="where an aggregator keeps its state"
    )
    parser.add_argument("--pseudonym", metavar="HEX", help="whom to look up there: 32 digits")
    parser.add_argument(
        "--full", action="store_true", help="write ids out; they link a device to its reports"
    )


def run(args: argparse.Namespace) -> int:
    """Run ``sotto ledger`` and return its exit status."""
    if args.device is not None and args.state is None and args.pseudonym is None:
        from clientsdk.ledger import read_file

        lines = device_lines(read_file(args.device), args.full)
    elif args.device is None and args.state is not None and args.pseudonym is not None:
        lines = pseudonym_lines(args.state, args.pseudonym, args.full)
    else:
        raise ParameterError("give a device's file, or both --state and --pseudonym")
    for line in lines:
        print(line)
    return 0


def device_lines(ledger: Ledger, full: bool) -> list[str]:
    """Return a device's ledger in lines, ids in full or their first 8 digits."""
    lines = [
        f"collector {ledger.collector}, consent {ledger.consent}",
        f"epsilon a period: at most {_epsilon(ledger.ceilings.period)}",
        f"epsilon in a lifetime: at most {_epsilon(ledger.ceilings.lifetime)}, "
        f"reserved {_epsilon(ledger.reserved)}, spent {_epsilon(ledger.spent)}",
        *_lost(ledger),
        "",
    ]
    if not ledger.periods:
        return [*lines, "nothing was recorded"]
    lines += table(
        ("budget period", "reserved", "spent", "recorded", "pseudonym"),
        [
            (
                f"{day(period.start)} to {day(period.end)}",
                _epsilon(period.reserved),
                _epsilon(period.spent),
                str(sum(period.recordings.values())),
                _names(period, full),
            )
            for period in ledger.periods
        ],
    )
    if ledger.permanent:
        lines += ["", *_permanent(ledger)]
    if not ledger.pending:
        return [*lines, "", "nothing is left to be released"]
    return [
        *lines,
        "",
        *table(
            ("chain", "metric", "recorded", "levels sent", "spent", "reserved", "next release"),
            [
                (
                    _id(chain.chain, full),
                    chain.metric,
                    minute(chain.event),
                    f"{chain.delivered} of {chain.levels}",
                    _epsilon(chain.spent),
                    _epsilon(chain.reserved),
                    minute(chain.due),
                )
                for chain in ledger.pending
            ],
        ),
    ]


def _names(period: LedgerPeriod, full: bool) -> str:
    """Return what an aggregator knows the device by: two of it if some messages are signed."""
    names = [each for each in (period.pseudonym, period.signed_pseudonym) if each]
    return " and ".join(_id(each, full) for each in names) or "erased"


def _lost(ledger: Ledger) -> list[str]:
    """Return how often the file was not what it should have been, if ever."""
    if not ledger.damaged and not ledger.restored:
        return []
    return [
        f"found damaged or lost {ledger.damaged} times, older than its mark {ledger.restored} "
        f"times: {_epsilon(ledger.carried)} carried over"
    ]


def _permanent(ledger: Ledger) -> list[str]:
    """Return what permanent responses cost: once, however many periods repeat it."""
    return table(
        ("permanent response", "cost in a lifetime", "held"),
        [
            (charge.metric, _epsilon(charge.cost), "yes" if charge.held else "erased")
            for charge in ledger.permanent
        ],
    )


def pseudonym_lines(state_dir: Path, pseudonym: str, full: bool) -> list[str]:
    """Return what an aggregator has of a pseudonym, ids in full or their first 8 digits."""
    from pipelines.storage.ledger import pseudonym_ledger

    lines: list[str] = []
    for found in pseudonym_ledger(state_dir, pseudonym):
        lines += [*([""] if lines else []), *_counted(found, full)]
    return lines or [f"nothing of pseudonym {_id(pseudonym, full)}, or its budget period is closed"]


def _counted(found: PseudonymLedger, full: bool) -> list[str]:
    return [
        f"pseudonym {_id(found.pseudonym, full)}, "
        f"{day(found.period_start)} to {day(found.period_end)}",
        f"epsilon counted {_epsilon(found.accepted)}, seen {_epsilon(found.observed)}, "
        f"budget {_epsilon(found.budget)}",
        *([f"revoked: {found.revoked}; nothing of it counts"] if found.revoked else []),
        "",
        *table(
            ("chain", "plan", "metric", "recorded", "level counted", "epsilon", "payloads a level"),
            [
                (
                    _id(chain.chain, full),
                    f"{chain.plan} v{chain.version}",
                    chain.metric,
                    minute(chain.event),
                    "none" if chain.counted is None else str(chain.counted + 1),
                    _epsilon(chain.accepted),
                    " ".join(map(str, chain.payloads)),
                )
                for chain in found.chains
            ],
        ),
    ]


def _id(digits: str, full: bool) -> str:
    """Return an id as it is shown to people, and left in terminals and tickets.

    >>> _id("0f3c5a7788990011", False)
    '0f3c5a77'
    """
    return digits if full else digits[:8]


def _epsilon(micro: int) -> str:
    """Return micro-epsilon as people write epsilon.

    >>> _epsilon(1_500_000)
    '1.500000'
    """
    return f"{micro // 1_000_000}.{micro % 1_000_000:06d}"
