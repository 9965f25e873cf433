"""Telemetry in a command line tool: a question at the terminal, and a command for later.

The answer is the consent in the state file. Which document of the plan it was given for is in a
file beside that, so that a person is asked again when what is collected changes.
"""

from __future__ import annotations

import os
import sys
from enum import StrEnum

from clientsdk.client import Client
from clientsdk.disabled import ASKED
from clientsdk.outcomes import Consent
from sotto.errors import ParameterError, wrong_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

_STATES = {
    Consent.GIVEN: "Telemetry is on: you have agreed.",
    Consent.WITHDRAWN: "Telemetry is off: it has no consent.",
    Consent.NEVER_GIVEN: "Telemetry is off: you have not been asked.",
}
_CHANGED = "Telemetry waits for your answer: what is collected has changed since you agreed."
_ERASED_LATER = "What waits on this device is erased as soon as its file can be written."


class TelemetryAction(StrEnum):
    """The actions of ``mytool telemetry``."""

    ON = "on"
    OFF = "off"
    STATUS = "status"
    SHOW = "show"


def ask(client: Client) -> bool:
    """Return whether the person agrees to what the plan collects; ask if that is not known.

    The question is asked once for each document of the plan, with the plan's own texts, and only
    where standard input and standard error are terminals, and not by a job in the background; a
    plan with groups has a question for each. Any answer but ``y`` or ``yes`` is no; both are
    remembered. An interrupt or the end of the input is no answer. While the question is open,
    nothing is recorded, also where the person agreed to an earlier document. A client that is
    switched off, or has no state file, asks nothing. Raises StoreError if an answer cannot be
    written.
    """
    if not isinstance(client, Client):
        raise wrong_type("client", "a Client", client)
    if client.settings.disabled:
        return False
    if _is_answered(client):
        return client.consented
    client._hold_back()
    # Without a place for the answer the person would be asked at each run.
    asks = _is_terminal(sys.stdin) and _is_terminal(sys.stderr) and not _in_background(sys.stdin)
    if not (asks and _remember(client, b"")):
        return False
    print(_text(client), file=sys.stderr)
    groups = [name for name, _ in client.plan.groups]
    answers = [_agrees(f"Do you agree to {name!r}?") for name in groups]
    answers = answers or [_agrees("Do you agree?")]
    if None in answers:
        return False
    agreed = [name for name, yes in zip(groups, answers, strict=False) if yes]
    if len(agreed) < len(groups) or not any(answers):
        client.withdraw_consent(groups=set(groups).difference(agreed) if agreed else None)
    given = any(answers) and client.give_consent(groups=agreed or None, again=True)
    _remember(client, client.plan.digest)
    return given


def telemetry(client: Client, action: TelemetryAction | str) -> str:
    """Do what a person asks of ``mytool telemetry``, and return what to print.

    ``on`` agrees to all that the plan collects, and ``off`` withdraws; ``status`` says which of
    them holds, and ``show`` also what is collected, what waits to be sent and what was spent.
    Raises ParameterError for another action, and StoreError where the answer cannot be written or
    the file cannot be read.
    """
    if not isinstance(client, Client):
        raise wrong_type("client", "a Client", client)
    if action not in [*TelemetryAction]:
        actions = ", ".join(TelemetryAction)
        raise ParameterError(f"action must be one of {actions}; got {action!r}")
    disabled, parts = client.settings.disabled, []
    if action == TelemetryAction.OFF:
        if not client.withdraw_consent():
            parts = [_ERASED_LATER]
    elif action == TelemetryAction.ON and not disabled:
        client.give_consent(again=True)
    if action in (TelemetryAction.ON, TelemetryAction.OFF) and not disabled:
        _remember(client, client.plan.digest)
    # A client that could not read its plan has one without metrics.
    if action in (TelemetryAction.ON, TelemetryAction.SHOW) and client.plan.metrics:
        parts = [_text(client).rstrip()]
    if action == TelemetryAction.SHOW and not disabled:
        parts += [str(client.preview()), str(client.ledger())]
    return "\n\n".join([_state(client), *parts])


def _state(client: Client) -> str:
    why = client.stats().disabled
    if why is not None:
        return f"Telemetry is off: {why}."
    said = client.consent
    # An app that has given consent by itself, and does not ask, has no note of a document.
    asks = client._held_back or os.path.exists(_beside(client))
    return _CHANGED if said and asks and not _is_answered(client) else _STATES[said]


def _is_answered(client: Client) -> bool:
    """Whether the person has answered what the plan asks now, or nobody could know."""
    if client._file is None:
        return True
    if client.consent is Consent.NEVER_GIVEN:
        return False
    try:
        with open(_beside(client), "rb") as file:
            return file.read() == client.plan.digest
    except OSError:
        return False


def _remember(client: Client, digest: bytes) -> bool:
    """Write down which document was answered, or that none was; return whether that works."""
    from sotto.files import write_small

    return client._file is None or write_small(_beside(client), digest)


def _text(client: Client) -> str:
    # Most runs of a tool show nothing.
    from sotto.disclosure.texts import consent_text

    return consent_text(client.plan)


def _beside(client: Client) -> str:
    return os.path.realpath(str(client._file)) + ASKED


def _is_terminal(stream: TextIO | None) -> bool:
    # A closed one raises ValueError; a program without a console has none.
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def _in_background(stream: TextIO) -> bool:
    """Whether the terminal is another job's: it would stop this process for reading from it."""
    # Windows has no jobs; a stream of another kind has no descriptor.
    try:
        return os.tcgetpgrp(stream.fileno()) != os.getpgrp()
    except (AttributeError, ValueError, OSError):
        return False


def _agrees(question: str) -> bool | None:
    """Ask, and return whether the answer is yes; None if there was none."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    return answer.strip().lower() in ("y", "yes") if answer else None
