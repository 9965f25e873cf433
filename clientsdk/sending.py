"""What a client does with what is due, and how it ends."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from clientsdk import schema
from clientsdk.arguments import checked_timeout
from clientsdk.aside import aside, awaited
from clientsdk.consenting import Consenting
from clientsdk.errand import Errand
from clientsdk.outcomes import FlushResult
from clientsdk.sender import out_of_time
from sotto.errors import StoreError

if TYPE_CHECKING:
    from typing import Self


class Sending(Consenting):
    """What a client sends, and its end."""

    def flush(self, timeout: float | None = None) -> FlushResult:
        """Send every report that is due now.

        Of a chain with several rungs due, the newest alone is sent. What is sent is charged
        first, in a commit that survives a loss of power. Of several processes on one file one
        sends at a time; the others wait for it up to ten seconds, or up to the timeout.

        Parameters
        ----------
        timeout : float, at least 0, optional
            Seconds after which this returns whatever the publisher does; no message is begun
            later. Without it, and one in the settings, the publisher's own limits are all there
            is.

        Returns
        -------
        FlushResult
            With the error that ended the flush early, if one did: a publisher that takes nothing,
            one that raises what it should not, and a full disk are no exceptions. What was not
            delivered is sent again, byte for byte, by a later flush.

        Raises
        ------
        StoreError
            The store cannot even be read.
        ParameterError
            The timeout is no number of seconds.

        Privacy
        -------
        A message never mixes pseudonyms, but whoever watches the transport can link messages
        sent in one flush. The sender in the background sends each at a time of its own; without
        it, flush when :meth:`next_due` says, rather than seldom and in bulk.
        """
        timeout = self.settings.flush_timeout if timeout is None else timeout
        if timeout is None:
            return self._do_errand(Errand(patience=schema.LOCK_PATIENCE))
        errand = Errand(checked_timeout(timeout), patience=math.inf)
        doing = aside(lambda: self._do_errand(errand))
        if doing is not None and doing.wait(timeout):
            return doing.result()
        return self._sender.unfinished(self._now(), errand)

    async def aflush(self, timeout: float | None = None) -> FlushResult:
        """Do what :meth:`flush` does, while the event loop of asyncio goes on."""
        return await awaited(lambda: self.flush(timeout))

    def _do_errand(self, errand: Errand) -> FlushResult:
        if self._off:
            return FlushResult(0, 0)
        try:
            self._withdraw_if_owed()
            now = self._now()
            self._settle(now)
            result = self._sender.flush(now, errand)
        except Exception:
            self._tally.failed()
            raise
        self._tally.flushed(result, now)
        return result

    def close(self, timeout: float | None = None) -> FlushResult:
        """Let go of the store; what is not delivered stays there. May be called again.

        The sender in the background, if there is one and its last attempt has not failed, first
        sends what is due of one pseudonym. Items counted in a period that is not over are lost;
        what they cost stays reserved, for another client to go on counting. From now on
        :meth:`record` answers ``store_full`` and all else raises StoreError.

        Parameters
        ----------
        timeout : float, at least 0, optional
            Seconds to wait at most for that sender, whatever its publisher does; by default what
            the settings say, one second.

        Returns
        -------
        FlushResult
            What was sent meanwhile, and what is due and still here; with an error if the sender
            could not be waited for to its end.

        Raises
        ------
        ParameterError
            The timeout is no number of seconds.
        """
        timeout = self.settings.close_timeout if timeout is None else timeout
        until = time.monotonic() + checked_timeout(timeout)
        sender, sent, error = self._background, 0, None
        if sender is not None:
            before = sender.sent
            sender.end(until)
            if not sender.wait(until):
                error = out_of_time()
            sent = sender.sent - before
        remaining = 0
        try:
            now = self._now()
            self._settle(now)
            with suppress(StoreError):
                self._admission.counts.release()
            with suppress(StoreError):
                remaining = self._sender.remaining(now)
            self._store.scrub(compact=False)
            self._store.settle()
        finally:
            self._store.close()
            self._store.refusals.clear()
        return FlushResult(sent, remaining, error=error)

    async def aclose(self, timeout: float | None = None) -> FlushResult:
        """Do what :meth:`close` does, while the event loop of asyncio goes on."""
        return await awaited(lambda: self.close(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
