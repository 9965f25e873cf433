"""What several commands are given: plans, how to reach brokers, and topics of reports."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sotto.kafka.brokers import Broker
    from sotto.plan.compiled import CompiledPlan


def add_plans(parser: argparse.ArgumentParser, which: str, *, required: bool = True) -> None:
    """Declare ``--plan``; ``which`` says which ones are to be given."""
    parser.add_argument(
        "--plan",
        type=Path,
        action="append",
        default=None if required else [],
        required=required,
        metavar="FILE",
        help=f"a plan (YAML), or a compiled one (.json); {which}",
    )


def add_broker(
    where: argparse._MutuallyExclusiveGroup, *others: str, help: tuple[str, str] | None = None
) -> None:
    """Declare ``--kafka`` and ``--broker``, of which one is given.

    Parameters
    ----------
    where : group
    others : str
        Further names of ``--kafka``.
    help : (str, str), optional
        What is said of the one and of the other.
    """
    clear, file = help or (
        "brokers, in the clear, without a name",
        "how to reach brokers (JSON)",
    )
    where.add_argument("--kafka", *others, metavar="HOST:PORT", help=clear)
    where.add_argument("--broker", type=Path, metavar="FILE", help=file)


def broker_of(args: argparse.Namespace) -> Broker:
    """Return how to reach the brokers that are given."""
    from sotto.kafka.brokers import Broker, require_client

    require_client()
    return Broker(args.kafka) if args.broker is None else Broker.from_file(args.broker)


def load(path: Path) -> tuple[CompiledPlan, dict[str, tuple[str, ...]]]:
    """Return a plan, compiled, and the candidates of its string metrics."""
    if path.suffix == ".json":
        from sotto.plan.compiled import CompiledPlan

        return CompiledPlan.from_json(path.read_bytes()), {}
    from sotto.plan.compile import load_plan

    plan = load_plan(path)
    return plan.compile(), dict(plan.candidates)


def plans_of(
    paths: Sequence[Path],
) -> tuple[list[CompiledPlan], dict[bytes, dict[str, tuple[str, ...]]]]:
    """Return plans that are given, and the candidates of their string metrics by fingerprint."""
    loaded = [load(path) for path in paths]
    plans = [plan for plan, _ in loaded]
    return plans, {plan.fingerprint: strings for plan, strings in loaded}


def tell_unsigned(plans: Sequence[CompiledPlan]) -> None:
    """Warn, on standard error, of plans without signatures where others of the collector have them.

    Raises
    ------
    PlanError
        The plans are not of one collector.
    """
    from sotto.plan.registry import Registry

    unsigned = Registry(plans).unsigned
    if unsigned:
        print(
            f"sotto: warning: {', '.join(unsigned)} of {plans[0].collector} has no signatures and "
            "other plans have: a device with both has two pseudonyms and two budgets in a period, "
            "and its unsigned one can be framed",
            file=sys.stderr,
            flush=True,
        )
