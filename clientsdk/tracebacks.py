"""What a traceback may not keep: the values that were at hand when something was raised."""

from __future__ import annotations

from contextlib import suppress


def drop_locals(error: BaseException) -> None:
    """Clear the local variables of the frames that an exception came through.

    To be called where it was caught. Names and lines of the functions stay in its traceback. What
    it was raised from, or raised while, is dropped: that has frames, and texts, of its own. The
    frame that calls this is running and cannot be cleared: it deletes its variables itself.
    """
    error.__cause__ = error.__context__ = None
    trace = error.__traceback__
    while trace is not None:
        with suppress(RuntimeError):
            trace.tb_frame.clear()
        trace = trace.tb_next
