"""What people call plans, and whether all are there under which reports have been counted."""

from __future__ import annotations

from pipelines.manifest import Manifest
from sotto.errors import DrainError
from sotto.registry import Registry


def names_of(registry: Registry) -> dict[str, str]:
    """Return the plans' names by fingerprint, in hexadecimal.

    Raises
    ------
    DrainError
        Two different plans have one.
    """
    names = {
        plan.fingerprint.hex(): f"{plan.plan} version {plan.version}" for plan in registry.plans
    }
    if len(set(names.values())) < len(names):
        raise DrainError("two different plans have the same name and version")
    return names


def check_plans(manifest: Manifest, registry: Registry) -> None:
    """Refuse a registry that lacks plans under which reports have been counted.

    Raises
    ------
    DrainError
        Which.
    """
    names = names_of(registry)
    missing = {found: name for found, name in manifest.plans.items() if found not in names}
    if missing:
        listed = ", ".join(f"{name} ({found})" for found, name in missing.items())
        raise DrainError(f"reports have been counted under plans that are missing: {listed}")
