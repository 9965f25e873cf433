"""Constant values: one permanent response for a device's life, degraded afresh in every period.

The last level of the ladder is drawn once from the value, which is then forgotten. It never leaves
the device: a response that was sent in every period would link all of them. What a period sends
is a chain of the levels below, drawn anew from the permanent response under a new chain id.

References
----------
Ú. Erlingsson, V. Pihur, A. Korolova, "RAPPOR", CCS 2014, section 3.1, whose instantaneous response
this replaces; M. Pan, arXiv:2401.13952, section 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping

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
