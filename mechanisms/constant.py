"""Constant values: one permanent response for a device's life, degraded afresh in every period.

The last rung of the ladder is drawn once from the value, which is then forgotten. It never leaves
the device: a response that was sent in every period would link all of them. What a period sends
is a chain of the rungs below, drawn anew from the permanent response under a new chain id.

References
----------
Ú. Erlingsson, V. Pihur, A. Korolova, "RAPPOR", CCS 2014, section 3.1, whose instantaneous response
this replaces; M. Pan, arXiv:2401.13952, section 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mechanisms.base import NO_ID, Mechanism
from mechanisms.errors import ParameterError
from mechanisms.randomness import Source
from mechanisms.registry import mechanism_class


def supports_constant(spec: Mapping[str, object]) -> bool:
    """Whether a mechanism can answer for a constant value.

    Its reports must not depend on a public coin: coins are hashed from the chain id or the
    pseudonym, and both change from period to period, while the permanent response was drawn under
    those of the first.

    Parameters
    ----------
    spec : mapping
        The ``mechanism`` object of a compiled plan.

    Examples
    --------
    >>> supports_constant({"name": "grr", "domain_size": 5})
    True
    >>> supports_constant({"name": "threshold", "missing": False})
    False
    >>> rappor = {"name": "rappor", "bits": 64, "hashes": 2}
    >>> supports_constant({**rappor, "cohorts": 1}), supports_constant({**rappor, "cohorts": 8})
    (True, False)
    """
    return mechanism_class(spec.get("name")).coinless(spec)


@dataclass(frozen=True)
class ConstantResponse:
    """A mechanism for a value that stays the same for a device's life.

    Parameters
    ----------
    mechanism : Mechanism
        Without public coins, at least two rungs; see :func:`supports_constant`.

    Raises
    ------
    ParameterError
        There is a single rung, so that none would be left to be sent.

    Privacy
    -------
    Any two values are neighbours. Everything that is ever sent is drawn from the permanent
    response alone, so that all periods together cost at most ``lifetime``, however many there are
    and even if they are linked; one period by itself costs ``period``. Not protected: that the
    value is constant.

    Relaxation
    ----------
    Within a period, as of the mechanism; from one period to the next nothing is relaxed.

    Utility
    -------
    Of one period, that of its strongest rung that is sent. The mean over periods of one
    population does not become more precise than the permanent response is.

    Use
    ---
    For what does not change (a model, a language), where the lifetime could not pay for a fresh
    response in every period. A value that changes is reported as it first was.

    References
    ----------
    RAPPOR's longitudinal case, with relaxation in the place of its instantaneous response.

    Examples
    --------
    >>> from mechanisms.category.grr import GeneralizedRandomizedResponse
    >>> from mechanisms.testing import SeededSource
    >>> constant = ConstantResponse(GeneralizedRandomizedResponse((0.5, 1.0, 2.0), 4))
    >>> permanent = constant.permanent(3, SeededSource(1))
    >>> len(constant.refresh(permanent, SeededSource(2)))
    2
    >>> constant.period, constant.lifetime
    (1000000, 2000000)
    """

    mechanism: Mechanism

    def __post_init__(self) -> None:
        if self.mechanism.levels < 2:
            raise ParameterError(
                "a constant value needs two rungs or more: the last is its permanent response, "
                "which is never sent"
            )

    @property
    def sent(self) -> int:
        """The number of rungs that are sent: all but the last."""
        return self.mechanism.levels - 1

    @property
    def lifetime(self) -> int:
        """What all periods together cost, in micro-epsilon: the permanent response."""
        return self.mechanism.certified(self.sent)

    @property
    def period(self) -> int:
        """What one period costs by itself, in micro-epsilon: the strongest rung that is sent."""
        return self.mechanism.certified(self.sent - 1)

    def permanent(self, symbol: Any, source: Source) -> bytes:
        """Draw the permanent response to a value; draw it once, keep it, never send it."""
        return self.mechanism.draw_last(symbol, NO_ID, NO_ID, source)

    def refresh(self, permanent: bytes, source: Source) -> tuple[bytes, ...]:
        """Draw the payloads of a period, weakest first, from the permanent response."""
        return self.mechanism.weaker(permanent, source)
