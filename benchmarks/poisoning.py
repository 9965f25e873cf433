"""From which share of the devices on an attack raises an alarm.

100,000 devices record one value each, at the levels 0.5, 1 and 2; all levels arrive and go through
``step``. The share is the smallest, found by halving, at which most of seven seeds raise the alarm;
*moves* is what forged reports of that share can move an estimate of a share by, at most.
"""

from __future__ import annotations

from benchmarks import attacks
from benchmarks.attacks import Attack

DEVICES = 100_000
SEEDS = range(1, 8)
HALVINGS = 8

#: What is measured: a metric, an attack, the check that finds it.
ROWS: tuple[tuple[str, Attack, str], ...] = (
    ("theme", attacks.repeat, "levels"),
    ("theme", attacks.fresh, "levels"),
    ("font", attacks.repeat, "levels"),
    ("city", attacks.repeat, "levels"),
    ("startup", attacks.repeat, "levels"),
    ("page", attacks.repeat, "levels"),
    ("host", attacks.repeat, "levels"),
    ("page", attacks.promote, "bits"),
    ("page", attacks.promote, "cells"),
    ("page", attacks.set_all_bits, "bits"),
    ("host", attacks.set_all_bits, "bits"),
    ("city", attacks.choose_coins, "coins"),
    ("startup", attacks.choose_coins, "coins"),
    ("size", attacks.choose_coins, "coins"),
    ("host", attacks.choose_coins, "coins"),
)


def found(name: str, attack: Attack, kind: str, share: float) -> bool:
    """Return whether most seeds raise the alarm."""
    raised = [kind in attacks.alarms(name, DEVICES, share, attack, seed) for seed in SEEDS]
    return 2 * sum(raised) > len(raised)


def smallest(name: str, attack: Attack, kind: str) -> float | None:
    """Return the smallest share that is found; None if not even half of the devices are."""
    low, high = 0.0, 0.5
    if not found(name, attack, kind, high):
        return None
    for _ in range(HALVINGS):
        middle = (low + high) / 2 if low else high / 4
        low, high = (low, middle) if found(name, attack, kind, middle) else (middle, high)
    return high


def main() -> None:
    """Print the table that docs/poisoning.md quotes."""
    plan = attacks.plan()
    print(f"{'mechanism':<14} {'attack':<13} {'check':<7} {'found from':>10} {'moves':>8}")
    for name, attack, kind in ROWS:
        mechanism = plan.metric(name).mechanism
        share, reach = smallest(name, attack, kind), mechanism.reach(mechanism.levels - 1)
        text = "" if share is None else f"{100 * share:.2g} %"
        moves = "" if share is None or reach is None else f"{100 * share * max(reach):.2g} %"
        print(f"{mechanism.name:<14} {attack.__name__:<13} {kind:<7} {text:>10} {moves:>8}")


if __name__ == "__main__":
    main()
