"""Show what a device, or a pseudonym, has spent, chain by chain.

A device's file has what the device has reserved and spent; it is read, not changed, and may be
in use. The aggregator's state has what it has counted and seen of one pseudonym. Once everything
is delivered, what a device has spent in a budget period is what the aggregator counts of it.

examples:
  sotto ledger app/telemetry.db
      consent, ceilings, what each budget period cost, and what is still to be released
  sotto ledger --state build/state --pseudonym 0f3c...
      the chains of one pseudonym as the aggregator has them
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.clocks import day, minute
from sotto.columns import columns, exact
from sotto.errors import ParameterError
from sotto_cli.options import add

if TYPE_CHECKING:
    from clientsdk.ledger import Ledger, LedgerPeriod
    from pipelines.storage.ledger import PseudonymLedger


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("device", nargs="?", type=Path, help="a device's state file")
    add(parser, "--state")
    add(parser, "--pseudonym HEX", "whom to look up there: 32 digits")
    add(parser, "--full", "write ids out; they link a device to its reports")


def run(args: argparse.Namespace) -> None:
    if args.device is not None and args.state is None and args.pseudonym is None:
        from clientsdk.ledger import read_file

        lines = device_lines(read_file(args.device), args.full)
    elif args.device is None and args.state is not None and args.pseudonym is not None:
        lines = pseudonym_lines(args.state, args.pseudonym, args.full)
    else:
        raise ParameterError("give a device's file, or both --state and --pseudonym")
    print("\n".join(lines))


def device_lines(ledger: Ledger, full: bool) -> list[str]:
    """Return a device's ledger in lines, ids in full or their first 8 digits."""
    lines = [
        f"collector {ledger.collector}, consent {ledger.consent}",
        f"epsilon a period: at most {exact(ledger.ceilings.period)}",
        f"epsilon in a lifetime: at most {exact(ledger.ceilings.lifetime)}, "
        f"reserved {exact(ledger.reserved)}, spent {exact(ledger.spent)}",
    ]
    if ledger.damaged or ledger.restored:
        lines.append(
            f"found damaged or lost {ledger.damaged} times, older than its mark {ledger.restored} "
            f"times: {exact(ledger.carried)} carried over"
        )
    lines.append("")
    if not ledger.periods:
        return [*lines, "nothing was recorded"]
    lines += columns(
        ledger.periods,
        {
            "budget period": lambda period: f"{day(period.start)} to {day(period.end)}",
            "reserved": lambda period: exact(period.reserved),
            "spent": lambda period: exact(period.spent),
            "recorded": lambda period: str(sum(period.recordings.values())),
            "pseudonym": lambda period: _names(period, full),
        },
    )
    if ledger.permanent:
        lines.append("")
        # Permanent responses cost once, however many periods repeat them.
        lines += columns(
            ledger.permanent,
            {
                "permanent response": lambda charge: charge.metric,
                "cost in a lifetime": lambda charge: exact(charge.cost),
                "held": lambda charge: "yes" if charge.held else "erased",
            },
        )
    if ledger.measured:
        lines.append("")
        lines += columns(
            ledger.measured,
            {
                "measured now": lambda measure: measure.metric,
                "kept in the file": lambda measure: measure.measure,
                "reserved": lambda measure: exact(measure.reserved),
                "drawn after": lambda measure: minute(measure.end),
            },
        )
    if not ledger.pending:
        return [*lines, "", "nothing is left to be released"]
    segmented = any(chain.segment for chain in ledger.pending)
    pending = columns(
        ledger.pending,
        {
            "chain": lambda chain: _id(chain.chain, full),
            "metric": lambda chain: chain.metric,
            "recorded": lambda chain: minute(chain.event),
            "segment": lambda chain: chain.segment if segmented else None,
            "levels sent": lambda chain: f"{chain.delivered} of {chain.levels}",
            "spent": lambda chain: exact(chain.spent),
            "reserved": lambda chain: exact(chain.reserved),
            "next release": lambda chain: minute(chain.due),
        },
    )
    return [*lines, "", *pending]


def _names(period: LedgerPeriod, full: bool) -> str:
    """Return what an aggregator knows the device by: two of it if some messages are signed."""
    names = [each for each in (period.pseudonym, period.signed_pseudonym) if each]
    return " and ".join(_id(each, full) for each in names) or "erased"


def pseudonym_lines(state_dir: Path, pseudonym: str, full: bool) -> list[str]:
    """Return what an aggregator has of a pseudonym, ids in full or their first 8 digits."""
    from pipelines.storage.ledger import pseudonym_ledger

    lines: list[str] = []
    for found in pseudonym_ledger(state_dir, pseudonym):
        lines += [*([""] if lines else []), *_counted(found, full)]
    return lines or [f"nothing of pseudonym {_id(pseudonym, full)}, or its budget period is closed"]


def _counted(found: PseudonymLedger, full: bool) -> list[str]:
    segmented = any(chain.segment for chain in found.chains)
    return [
        f"pseudonym {_id(found.pseudonym, full)}, "
        f"{day(found.period_start)} to {day(found.period_end)}",
        f"epsilon counted {exact(found.accepted)}, seen {exact(found.observed)}, "
        f"budget {exact(found.budget)}",
        *([f"revoked: {found.revoked}; nothing of it counts"] if found.revoked else []),
        "",
        *columns(
            found.chains,
            {
                "chain": lambda chain: _id(chain.chain, full),
                "plan": lambda chain: f"{chain.plan} v{chain.version}",
                "metric": lambda chain: chain.metric,
                "recorded": lambda chain: minute(chain.event),
                "segment": lambda chain: chain.segment if segmented else None,
                "level counted": lambda chain: (
                    "none" if chain.counted is None else str(chain.counted + 1)
                ),
                "epsilon": lambda chain: exact(chain.accepted),
                "payloads a level": lambda chain: " ".join(map(str, chain.payloads)),
            },
        ),
    ]


def _id(digits: str, full: bool) -> str:
    """Return an id as it is shown to people, and left in terminals and tickets."""
    return digits if full else digits[:8]
