"""A client's parts once its store is open; a client that does nothing never imports it."""

from __future__ import annotations

from clientsdk.consent import ConsentKeeper, warn_if_nothing_fits
from clientsdk.disabled import plan_if_honoured
from clientsdk.item_counter import ItemCounter
from clientsdk.recorder import Recorder
from clientsdk.sending.outgoing import Outgoing
from clientsdk.store.recovery import open_store
from clientsdk.store.store import Store
from mechanisms.frozen import frozen, replace
from sotto.clocks import if_known

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clientsdk.settings import Opening


@frozen
class ClientParts:
    store: Store
    recorder: Recorder
    consent: ConsentKeeper
    outgoing: Outgoing


def open_parts(given: Opening) -> ClientParts:
    """Open a client's store, in memory if the client is disabled, and make what works on it."""
    plan, settings, now, source = given.plan, given.settings, given.now, given.source
    if settings.disabled:
        # A disabled client signs nothing: the library for that need not be installed.
        plan = replace(plan, authentication="none")
    path = None if settings.disabled else given.file
    store = open_store(path, plan, given.ceilings, if_known(now), source, settings.quota)
    if not settings.disabled:
        warn_if_nothing_fits(plan, store.ceilings)
    recorder = Recorder(store, plan, source)
    consent = consent_of(given, store, recorder.counter)
    outgoing = Outgoing(given, store, recorder, consent)
    return ClientParts(store, recorder, consent, outgoing)


def consent_of(
    given: Opening, store: Store | None = None, counter: ItemCounter | None = None
) -> ConsentKeeper:
    """Return what writes a client's consent; one that is disabled needs no store for it."""
    if given.settings.disabled:
        given = replace(given, plan=plan_if_honoured(given.plan))
    return ConsentKeeper(given, store, counter)
