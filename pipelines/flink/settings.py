"""What Flink is told of a job. A session's own settings do not reach jobs from Python."""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

from pipelines.flink.orders import MAX_PARALLELISM, Order

#: How long elements may wait in Java to be sent to Python together, ms, and how many may.
_BUNDLE_MS = 200
_BUNDLE = 2_000
#: A checkpoint that takes longer is given up; the job goes on.
_CHECKPOINT_TIMEOUT = "10 min"


def settings(order: Order) -> dict[str, str]:
    """Return Flink's settings for a job."""
    where = urlsplit(order.flink)
    says: dict[str, object] = {
        "execution.target": "remote",
        "rest.address": where.hostname,
        "rest.port": where.port or 8081,
        "execution.attached": "false",
        "pipeline.name": order.name,
        "pipeline.max-parallelism": MAX_PARALLELISM,
        "parallelism.default": order.parallelism,
        "python.client.executable": sys.executable,
        "python.executable": order.worker or sys.executable,
        "python.fn-execution.bundle.time": _BUNDLE_MS,
        "python.fn-execution.bundle.size": _BUNDLE,
        # Pieces of state are large, and live states are held by their keepers.
        "python.map-state.read-cache-size": 0,
        "table.local-time-zone": "UTC",
        "state.backend.type": order.backend,
        "execution.checkpointing.incremental": str(order.backend == "rocksdb").lower(),
        "execution.checkpointing.interval": f"{order.checkpoint_every} ms",
        "execution.checkpointing.min-pause": f"{order.checkpoint_every // 5} ms",
        "execution.checkpointing.timeout": _CHECKPOINT_TIMEOUT,
        "execution.checkpointing.tolerable-failed-checkpoints": 1_000,
        "execution.checkpointing.unaligned.enabled": "false",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "execution.checkpointing.num-retained": 2,
        "execution.checkpointing.dir": order.checkpoints,
        "execution.checkpointing.savepoint-dir": order.savepoints,
        "restart-strategy.type": "exponential-delay",
        "restart-strategy.exponential-delay.initial-backoff": "1 s",
        "restart-strategy.exponential-delay.max-backoff": "30 s",
    }
    if order.restore is not None:
        says["execution.state-recovery.path"] = order.restore
    return {name: str(value) for name, value in says.items()}
