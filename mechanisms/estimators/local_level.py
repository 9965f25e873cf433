"""The local level model: a figure that drifts a little from window to window, seen with noise.

The model of window t is ``y_t = m_t + e_t`` and ``m_t = m_{t-1} + w_t``, with independent normal
``e_t`` of known standard error and ``w_t`` of standard deviation *drift*. The Kalman filter is
exact for it, also where windows are missing and where errors differ. With one state it is scalar:
the whole of it is shorter than the adapter to a general package would be, and so many values of the
drift are tried in one pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mechanisms.arrays import Floats
from mechanisms.errors import ParameterError

#: Drifts that are tried, in units of the median standard error of a window, beside none.
_TRIED = np.geomspace(1e-3, 10, 120)


@dataclass(frozen=True)
class Smoothed:
    """A smoothed series: for display, since neighbouring windows share what they say.

    ``values`` and ``errors``, shape (t,), are the expected level of each window given all of them,
    and its standard error; ``drift`` is the model's standard deviation of a change from one window
    to the next, in the figure's unit; ``estimated`` is whether it was found by maximum likelihood.
    """

    values: Floats
    errors: Floats
    drift: float
    estimated: bool

    @property
    def model(self) -> str:
        """The name of the model, for the legend of a chart."""
        how = "estimated" if self.estimated else "given"
        return f"local level, drift {self.drift:.2g} a window ({how}), smoothed both ways"


def smooth(values: Floats, errors: Floats, drift: float | None = None) -> Smoothed:
    """Return the levels of a series, smoothed by the Rauch-Tung-Striebel recursion.

    Parameters
    ----------
    values, errors : ndarray of float64, shape (t,)
        One entry a window, in order. A missing window is NaN in ``values``; errors are positive
        where values are not missing. At least one is there.
    drift : float in [0, inf), optional
        In the unit of the values; by maximum likelihood if not given.

    Raises
    ------
    ParameterError
        If a parameter is outside its range.

    References
    ----------
    Durbin and Koopman, "Time Series Analysis by State Space Methods", 2nd ed. (2012), chapter 2;
    Rauch, Tung and Striebel, "Maximum likelihood estimates of linear dynamic systems", AIAA Journal
    3 (1965).

    Examples
    --------
    Drift .003 and noise .03 a window: far from both ends of a series the error is .0067.

    >>> smooth(np.zeros(401), np.full(401, 0.03), drift=0.003).errors[[200, 400]].round(4).tolist()
    [0.0067, 0.0093]
    """
    values, errors = _checked(values, errors)
    if drift is not None and not 0 <= drift < np.inf:
        raise ParameterError(f"drift must lie in [0, inf), not {drift}")
    used = likely_drift(values, errors) if drift is None else drift
    level, variance, predicted = (each[:, 0] for each in _filter(values, errors, np.array([used])))
    for t in range(len(values) - 2, -1, -1):
        if np.isfinite(variance[t]):
            gain = variance[t] / predicted[t + 1] if variance[t] else 1.0
            level[t] += gain * (level[t + 1] - level[t])
            variance[t] += gain**2 * (variance[t + 1] - predicted[t + 1])
        else:
            # Before the first window that is there, the level is that one's, and the drift adds.
            level[t] = level[t + 1]
            variance[t] = variance[t + 1] + used**2
    return Smoothed(level, np.sqrt(variance), float(used), drift is None)


def likely_drift(values: Floats, errors: Floats) -> float:
    """Return the most likely drift, to 4 %; parameters as of :func:`smooth`."""
    values, errors = _checked(values, errors)
    there = np.isfinite(values)
    drifts = np.r_[0.0, _TRIED * np.median(errors[there])]
    level, _, predicted = _filter(values, errors, drifts)
    after = np.flatnonzero(there)[1:]
    variance = predicted[after] + errors[after, None] ** 2
    # The level predicted for a window is that of the window before: between them it stands still.
    surprise = values[after, None] - level[after - 1]
    likelihood = -0.5 * (surprise**2 / variance + np.log(variance)).sum(axis=0)
    return float(drifts[likelihood.argmax()])


def _checked(values: Floats, errors: Floats) -> tuple[Floats, Floats]:
    values, errors = np.asarray(values, np.float64), np.asarray(errors, np.float64)
    there = np.isfinite(values)
    if values.ndim != 1 or errors.shape != values.shape or not there.any():
        raise ParameterError("values and errors must be of the same windows, and some not missing")
    if not (np.isfinite(errors[there]).all() and (errors[there] > 0).all()):
        raise ParameterError("errors must be positive and finite where values are not missing")
    return values, errors


def _filter(values: Floats, errors: Floats, drifts: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the filtered levels and variances, and the variances before each window was seen.

    Shapes are (t, d), for d drifts; before the first window that is there, variances are infinite.
    """
    shape = (len(values), len(drifts))
    level, variance, predicted = np.zeros(shape), np.full(shape, np.inf), np.full(shape, np.inf)
    now, spread = np.zeros(len(drifts)), np.full(len(drifts), np.inf)
    for t, (value, error) in enumerate(zip(values, errors, strict=True)):
        spread = spread + drifts**2
        predicted[t] = spread
        if np.isfinite(value):
            first = np.isinf(spread[0])
            gain = np.ones(len(drifts)) if first else spread / (spread + error**2)
            now = now + gain * (value - now)
            spread = gain * error**2
        level[t], variance[t] = now, spread
    return level, variance, predicted
