"""The head of a plan in YAML, of which a test says only what it is about."""

from __future__ import annotations


def plan_head(
    plan: str = "trial",
    ceilings: tuple[float, float] = (1000, 100000),
    *,
    collector: str = "tests.example",
    **more: object,
) -> str:
    """Return a plan up to its metrics, which follow on lines that begin with two spaces."""
    keys = {
        "collector": collector,
        "plan": plan,
        "version": 1,
        "owner": f"telemetry@{collector}",
        "expires": "2100-01-01",
        "period": "7d",
        "resolution": "1h",
        "ceilings": "{{period: {}, lifetime: {}}}".format(*ceilings),
        **more,
    }
    return "".join(f"{name}: {value}\n" for name, value in keys.items()) + "metrics:\n"
