"""Whether all plans are there under which reports have been counted, and are what they were."""

from __future__ import annotations

from pipelines.storage.manifest import Manifest
from sotto.errors import AggregationError
from sotto.plan.registry import Registry, check_unchanged, names_of


def check_plans(manifest: Manifest, registry: Registry) -> None:
    """Refuse a registry that lacks or contradicts plans under which reports have been counted.

    Parameters
    ----------
    manifest : Manifest
    registry : Registry

    Raises
    ------
    PlanError
        A plan has another fingerprint than before.
    AggregationError
        Plans are missing, and which.
    """
    check_unchanged(manifest.plans, registry.plans)
    names = names_of(registry.plans)
    missing = {found: name for found, name in manifest.plans.items() if found not in names}
    if missing:
        listed = ", ".join(f"{name} ({found})" for found, name in missing.items())
        raise AggregationError(
            f"reports have been counted under plans that are missing: {listed}; "
            "give them with --plan"
        )
