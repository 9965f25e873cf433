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
RETENTION = (
    "Of the devices that were new in a window before, the part that came again in this one: a "
    "ratio of two estimated shares, each times the reports of its window. The interval of 95 % is "
    "Fieller's; there is none, and no estimate, where the share of new devices is not told from 0."
)
SHOWN = (
    "“Displayed” is a set of shares that could be, none below 0 and all together 100 %, with the "
    "least error that is predicted of such sets. It is for charts: it is not right on average, and "
    "the interval does not belong to it."
)
BIASED = "biased, no interval"
METHODS = {
    "monotone": "made to rise; biased where it evens out",
    "smoothed": "biased toward a smooth distribution; has no interval",
    "em": "the most likely shares, biased near 0 and 1; has no interval",
    "biased": "of what devices sent, which need not be what was true; has no interval",
    "always": "the interval holds at all looks together",
}
RANGES = (
    "Windows that lie within the range are put together: one that reaches beyond an end is not, "
    "and neither are those that are withheld or still open. The interval counts that a permanent "
    "response is the same noise in every window. Compare with “previous”, as long a range just "
    "before; with another range, such as 2013-06-01..2013-07-01; with a segment, such as os=linux; "
    "or, for a segment, with “all”. A bold difference is told from zero. “Found from” is the "
    "smallest true difference that is told from zero four times in five: of smaller ones, nothing "
    "is shown by an interval that holds zero. Among twenty figures compared, one is off by chance. "
    "The page's address keeps the range: send it, and others see the same."
)
HISTORY = (
    "Each window is estimated from its own reports alone. A window that is still open, or whose "
    "reports are at early levels, has a wider interval and will change. A difference between "
    "windows can be noise where their intervals overlap, and a change of who reports looks "
    "like a change of what they report. A smoothed line is the level that a model which drifts "
    "expects given all windows, for display: its points share what the windows around them say."
)
MOVED = (
    "Each window is compared with what the earlier windows of its figure predict: the figure may "
    "drift as it has drifted so far, and the noise that devices added is known. A larger "
    "change, in one window or in several together, is an alert. The interval assumes that the "
    "figure moved at that time. Only large changes raise an alert, so a change found at once is "
    "on average overestimated. An alert does not say why: a figure also moves when other devices "
    "report, or when a plan or an app has changed. An alert stays as it was raised when its "
    "windows are revised."
)
WATCHED = (
    "A window is judged once its last level is due. “Noise around it” is the standard deviation of "
    "the next window around what is expected of it; “drift” that of a change of the level from one "
    "window to the next, as far as it is known. The smoothed line of a chart is for display: its "
    "points share what the windows around them say, so that neither a change nor an interval can "
    "be read off it."
)
SHARPENING = (
    "A device releases one answer several times, each time with less noise; the newest release "
    "replaces the one before. So a window sharpens without a further report about it. The "
    "predicted standard error is what it would be if all reports were at that level, for the data "
    "named; it covers noise alone."
)
SEGMENTS = (
    "The same figure among the reports of each segment. Segments are public facts that a device "
    "states when it records, not protected values, and their numbers of reports are exact. "
    "Intervals are for each segment by itself: among "
    "20 segments that are alike, one is expected to lie outside. A segment with fewer reports than "
    "the plan's minimum is withheld. A difference says nothing about its cause."
)
POISONED = (
    "Counts are compared with the law that reports of honest devices follow, whatever their values "
    "are; by chance a check raises an alarm for less than one window in 1,000,000,000. It means a "
    "faulty client or devices that lie; it does not say which devices. Devices that follow the "
    "protocol with false values are never noticed."
)
FORGED = (
    "“One forger” is how far the forged reports of one more pseudonym can move an estimate at "
    "most, whatever they say, at the weakest level that has reports. A hundred forgers move it "
    "about a hundred times as far. No check finds those who keep to the protocol, such as by weak "
    "levels that are drawn as they should be and a last one that is made up. It is not stated of "
    "quotients, quantiles and most likely shares, nor where an earlier release wrote the window."
)
#: The subject of each check of alarms.
CHECKS = {
    "coins": "which public coins reports have",
    "levels": "how often two levels of an answer are equal",
    "bits": "how many bits are set",
    "cells": "shares that are below 0 or above 100 %",
}
EXPERIMENT = (
    "How much more an arm has than the first one: the average effect of the arm on the devices "
    "that are counted. Reports of all complete windows are added and compared once. The interval "
    "is for all looks together: with 95 % probability it never excludes that effect, however often "
    "somebody looks, and whenever he stops. Where a device can report in several windows it is "
    "about as wide as that of one window, since the device keeps its arm. It is for each figure by "
    "itself: among 20 figures without any effect, one may exclude zero.",
    "A planned end takes far fewer users. The metric that decides is compared at the planned looks "
    "alone, with boundaries that together are crossed by chance in 5 % of experiments without an "
    "effect. Nothing is decided between looks, and by no other metric.",
    "Counted are reports of the last level alone. Both take for granted that devices are "
    "assigned evenly and by chance, that no arm loses or delays more reports than another, and "
    "that no report was taken back. If the arms' reports are not as even as planned, one of these "
    "is wrong, and the difference says nothing.",
)
WINDOW = (
    "A window holds the reports of values that were recorded in it. Reports arrive later than the "
    "values they are about, so that a window goes on changing after its end."
)
REJECTED = (
    "Reports that were not counted, by reason. They are kept with their bytes for as long as the "
    "plan says. Noise on the network and old apps cause a few; many of one reason are a fault or "
    "an attack. Reports that never arrived are not shown here."
)
BUDGETS = (
    "What pseudonyms have spent, audited from what arrived. A pseudonym is one device in one "
    "period; two periods of a device cannot be joined. One that sent more than its budget, or two "
    "answers where there can be one, is revoked: none of its reports counts. Observed also counts "
    "what was rejected. This is a check of devices, not the bound that a plan promises: that is "
    "the ceiling."
)
JOB = (
    "How far the job is, as of its last commit. The log's clock is the time at which the newest "
    "report that was read had been appended: if it stands still, either nothing arrives or the "
    "job does not run."
)
LEVELS = (
    "“Certified” is the exact worst-case loss of all releases up to that level, computed from the "
    "probabilities that the sampler uses, and is what a device is charged. “A lie counts” is by "
    "how much a forged report can move a share, or a mean in parts of its range. A bound on what "
    "can be learnt from reports says nothing about what is known from elsewhere."
)
CEILINGS = (
    "A device stops recording before a ceiling would be exceeded. Ceilings belong to one device "
    "and one collector: a person with several devices, or who reinstalls, has several."
)


def of_kinds(kinds: Iterable[str]) -> list[str]:
    """Return what figures of some kinds mean, each sentence once."""
    return list(dict.fromkeys(KINDS[kind] for kind in kinds if kind in KINDS))
