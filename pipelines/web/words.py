"""Meanings of figures and what they do not cover, in sentences that stand beside them."""

from __future__ import annotations

from collections.abc import Iterable

_INTERVAL = (
    "The interval of 95 % covers the noise that devices added: of 100 such intervals about 95 hold "
    "the figure of the reports that counted here. It does not cover devices that are silent: those "
    "that did not agree, are offline, or answer in another period."
)
_UNBIASED = (
    "Estimates are right on average. So a small share can come out below 0 %, and shares need not "
    "sum to 100 %."
)
#: By kind of estimate: what it is.
KINDS = {
    "share": f"The share of reports with this answer. {_UNBIASED} {_INTERVAL}",
    "group": "The share of several values together, which the reports do not distinguish. "
    f"{_INTERVAL}",
    "mean": f"The mean of what was reported, each value limited to the plan's range. {_INTERVAL}",
    "missing": f"The share of reports that say there is no value. {_INTERVAL}",
    "quantile": "The value below which this part of the values lies. It is read off the estimated "
    "distribution, and depends on its shape near that value. Its interval covers at least what it "
    "says. Silent devices are not covered.",
    "conversion": "The share of those who reached the step before that reached this one.",
    "cdf": "The share of values at or below a point. Of a number the curve is made to rise, which "
    "evens out noise and biases it where it was uneven; each point stands for a small part of the "
    "range. The band is of 95 % at each point, not for the whole curve at once, and does not cover "
    "silent devices.",
    "bit": "The share of values in which this bit of the number is set, the first the most "
    f"significant. {_INTERVAL}",
    "string": "The share of reports with this string, of all candidates that were looked for. A "
    "string that is no candidate cannot be found. Significant means distinguished from zero, "
    "corrected for the number of candidates. The detection floor is the smallest share that a test "
    "of this string alone finds four times in five: a rarer string may be there, and is not "
    "distinguished from noise. "
    f"{_INTERVAL}",
    "unexplained": "The share of reports that no candidate accounts for.",
    "false_names": "About how many of the strings called significant nobody has: their number "
    "times the plan's false discovery rate, which trades a few false names for more true ones. "
    "Where hardly any of the candidates is anybody's, more of them are false.",
}
SHOWN = (
    "“Displayed” is a set of shares that could be, none below 0 and all together 100 %, with the "
    "least error that is predicted of such sets. It is for charts: it is not right on average, and "
    "the interval does not belong to it."
)
BIASED = "biased, no interval"
HISTORY = (
    "Each window is estimated from its own reports alone. A window that is still open, or whose "
    "reports are at early levels, has a wider interval and will change. A difference between "
    "windows can be noise where their intervals overlap, and a change of who reports looks "
    "like a change of what they report. A smoothed line is the level that a model which drifts "
    "expects given all windows, for display: its points share what the windows around them say."
)
FORGED = (
    "“One forger” is how far the forged reports of one more pseudonym can move an estimate at "
    "most, whatever they say, at the weakest level that has reports. A hundred forgers move it "
    "about a hundred times as far. No check finds those who keep to the protocol, such as by weak "
    "levels that are drawn as they should be and a last one that is made up. It is not stated of "
    "quotients, quantiles and most likely shares, nor where an earlier release wrote the window."
)
WINDOW = (
    "A window holds the reports of values that were recorded in it. Reports arrive later than the "
    "values they are about, so that a window goes on changing after its end."
)


def of_kinds(kinds: Iterable[str]) -> list[str]:
    """Return what figures of some kinds mean, each sentence once."""
    return list(dict.fromkeys(KINDS[kind] for kind in kinds if kind in KINDS))
