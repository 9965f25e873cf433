"""An app as mypy sees it, under ``--strict``, with nothing installed but the wheel."""

from __future__ import annotations

from pathlib import Path

import generated

from clientsdk import (
    NO_LIFETIME_BOUND,
    Client,
    CompiledPlan,
    EmbeddedLogPublisher,
    FlushResult,
    KafkaPublisher,
    Ledger,
    MemoryPublisher,
    Outcome,
    Publisher,
    Quota,
    Settings,
)
from clientsdk.testing import FakeClock, SeededClient, small_plan


class Printing:
    """A publisher of the app's own."""

    def publish(self, shard: int, message: bytes) -> None:
        print(shard, len(message))

    def close(self) -> None:
        pass


def choose(folder: Path, server: str | None) -> Publisher:
    if server is not None:
        return KafkaPublisher(server, "reports-e1-p8")
    return EmbeddedLogPublisher(folder / "log")


def use(plan: CompiledPlan, state: Path, publisher: Publisher) -> FlushResult:
    with Client(plan, state=state, publisher=publisher, quota=Quota(age=86_400)) as client:
        client.give_consent()
        outcome: Outcome = client.record("colour", "red")
        if outcome is not Outcome.ACCEPTED:
            raise RuntimeError(outcome.value)
        ledger: Ledger = client.ledger()
        print(ledger.reserved, client.next_due())
        return client.flush(timeout=1.0)


async def use_in_a_loop(plan: CompiledPlan) -> int:
    settings = Settings(background=False)
    async with Client(
        plan, state=NO_LIFETIME_BOUND, publisher=Printing(), settings=settings
    ) as client:
        result = await client.aflush(timeout=0.5)
    return result.sent


def use_by_type(state: Path) -> Outcome:
    client = Client(generated.PLAN, state=state, publisher=MemoryPublisher())
    metrics = generated.Metrics(client)
    return metrics.colour.record("red")


def try_it() -> None:
    clock, publisher = FakeClock(), MemoryPublisher()
    client = SeededClient(small_plan(), seed=1, clock=clock, publisher=publisher)
    client.record("colour", "red")
    clock.advance(days=2)
    assert client.flush().sent == 1
    messages: list[tuple[int, bytes]] = publisher.messages
    assert len(messages) == 1


if __name__ == "__main__":
    try_it()
    print(use(small_plan(), Path("device.db"), choose(Path(), None)).remaining)
