"""Clients in event loops and threads: nothing that may take long keeps a loop from going on."""

from __future__ import annotations

import asyncio
import sched

import pytest
from device_plans import metric, reports
from slow_publishers import PATIENCE, Noting, Stuck, quick_plan, wait_until_due

from clientsdk import NO_LIFETIME_BOUND, Client, Outcome
from sotto.errors import ParameterError, StoreError

ONE_RUNG = quick_plan(metric("colour", "every", 1000, ladder=[(500_000, 0)]))


def device(publisher, **options):
    client = Client(ONE_RUNG, state=NO_LIFETIME_BOUND, publisher=publisher, **options)
    client.give_consent()
    return client


def test_recording_sending_and_closing_in_an_event_loop():
    async def app():
        publisher = Noting()
        async with device(publisher) as client:
            assert client.record("colour", "a") is Outcome.ACCEPTED
            await asyncio.to_thread(publisher.wait_for, 1)
        assert client.record("colour", "a") is Outcome.CLOSED
        return publisher

    assert len(reports(asyncio.run(app()).messages)) == 1


def with_a_report_due(*, background):
    """A client, and its publisher, which waits to be let go."""
    publisher = Stuck()
    client = device(publisher, background=background)
    client.record("colour", "a")
    wait_until_due(client)
    return client, publisher


@pytest.mark.parametrize("use", ["aflush", "aclose"])
def test_the_loop_goes_on_while_a_client_sends(use):
    """Else nobody would let go, and the publisher would fail."""

    async def app():
        client, publisher = with_a_report_due(background=use == "aclose")
        waiting = asyncio.create_task(getattr(client, use)(PATIENCE))
        assert await asyncio.to_thread(publisher.entered.wait, PATIENCE)
        assert not waiting.done()
        publisher.let_go.set()
        result = await waiting
        assert (result.remaining, result.error) == (0, None)
        assert len(publisher.messages) == 1
        await client.aclose()
        with pytest.raises(StoreError):
            await client.aflush()

    asyncio.run(app())


def test_a_window_goes_on_while_its_client_sends():
    """A loop of callbacks in one thread, as of a GUI: ``enter`` is ``after`` of tkinter."""
    loop = sched.scheduler()
    client, publisher = with_a_report_due(background=True)

    def tick():
        client.record("colour", "a")
        if publisher.entered.is_set():
            publisher.let_go.set()
        else:
            loop.enter(0.001, 0, tick)

    loop.enter(0, 0, tick)
    loop.run()
    publisher.wait_for(1)
    client.close()


def test_a_time_that_makes_no_sense_is_refused():
    with device(Noting()) as client, pytest.raises(ParameterError):
        asyncio.run(client.aclose(-1))


def test_whoever_gives_up_waiting_leaves_the_flush_to_go_on():
    async def app():
        client, publisher = with_a_report_due(background=False)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.aflush(), 0.05)
        return client, publisher

    # The loop is closed by the time at which the flush ends.
    client, publisher = asyncio.run(app())
    publisher.let_go.set()
    publisher.wait_for(1)
    assert client.flush(PATIENCE).remaining == 0
    client.close()
