"""Clients in an event loop: nothing that may take long keeps it from going on."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from device_plans import metric, reports
from slow_publishers import PATIENCE, RESOLUTION, Noting, Stuck, quick_plan

from clientsdk import NO_LIFETIME_BOUND, Client, Outcome
from sotto.errors import ParameterError, StoreError

ONE_RUNG = quick_plan(metric("colour", "every", 1000, ladder=[(500_000, 0)]))


def device(publisher, **options):
    client = Client(ONE_RUNG, state=NO_LIFETIME_BOUND, publisher=publisher, **options)
    client.give_consent()
    return client


async def count(ticks):
    while True:
        ticks.append(None)
        await asyncio.sleep(0)


async def beside(work):
    """Await something; return its result and how often another task had its turn meanwhile."""
    ticks = []
    counting = asyncio.create_task(count(ticks))
    await asyncio.sleep(0)
    before = len(ticks)
    try:
        return await work, len(ticks) - before
    finally:
        counting.cancel()


def test_recording_sending_and_closing_in_an_event_loop():
    async def app():
        publisher = Noting()
        async with device(publisher) as client:
            assert client.record("colour", "a") is Outcome.ACCEPTED
            await asyncio.to_thread(publisher.wait_for, 1)
        assert client.record("colour", "a") is Outcome.STORE_FULL
        return publisher

    assert len(reports(asyncio.run(app()).messages)) == 1


def test_the_loop_goes_on_while_a_client_closes():
    async def app():
        publisher = Stuck()
        client = device(publisher)
        client.record("colour", "a")
        assert await asyncio.to_thread(publisher.entered.wait, PATIENCE)
        started = time.monotonic()
        result, ticks = await beside(client.aclose(0.2))
        assert 0.2 <= time.monotonic() - started < PATIENCE / 2
        assert ticks > 20
        assert (result.sent, result.remaining) == (0, 1)
        publisher.let_go.set()

    asyncio.run(app())


def test_the_loop_goes_on_while_a_client_flushes():
    async def app():
        publisher = Stuck()
        client = device(publisher, background=False)
        client.record("colour", "a")
        await asyncio.sleep(RESOLUTION * 2 / 1000)
        result, ticks = await beside(client.aflush(0.2))
        assert ticks > 20
        assert result.remaining == 1
        waiting = asyncio.create_task(client.aflush())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        publisher.let_go.set()
        assert (await waiting).remaining == 0
        await client.aclose()
        with pytest.raises(StoreError):
            await client.aflush()
        with pytest.raises(ParameterError):
            await client.aclose(-1)

    asyncio.run(app())
    assert threading.active_count() < 20


def test_whoever_gives_up_waiting_leaves_the_flush_to_go_on():
    async def app():
        publisher = Stuck()
        client = device(publisher, background=False)
        client.record("colour", "a")
        await asyncio.sleep(RESOLUTION * 2 / 1000)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.aflush(), 0.05)
        return client, publisher

    # The loop is closed by the time at which the flush ends.
    client, publisher = asyncio.run(app())
    publisher.let_go.set()
    publisher.wait_for(1)
    assert client.flush(PATIENCE).remaining == 0
    client.close()
