"""The report's sections about estimates: rungs, airlines, the year, delays, destinations."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from ..findings import Decoding, Fate, Findings
from . import figures, page
from .page import key, section
from .svg import percent, plain

TITLE = "A year of flights, reported in a low voice"


def opening(found: Findings) -> str:
    """The title, what this is, and the headline figures."""
    totals = found.totals
    together = found.coverage[-1]
    equal = sum(period.difference == 0 for period in found.ledger)
    rejected = sum(reason.found for reason in found.quarantine)
    return (
        f"<h1>{TITLE}</h1>"
        f'<p class="lede">{totals.devices:,} aircraft, each with the real SDK inside, reported on '
        "their departures from New York in 2013. Every report was randomized on the aircraft "
        "before it was stored or sent, so that no single one can be believed; what the "
        "aggregator makes of all of them stands below, beside the truth that only a "
        "simulation knows.</p>"
    ) + page.tiles(
        [
            (f"{totals.flights:,}", f"flights replayed on {totals.devices:,} aircraft"),
            (
                f"{totals.reports / 1e6:.2f} M",
                f"randomized reports of {totals.chains:,} values, three rungs each",
            ),
            (
                percent(together.hits / together.total),
                f"of {together.total:,} intervals of 95 % hold their truth",
            ),
            (
                f"ε {totals.week_epsilon:.3g}",
                f"spent by an aircraft a week at most; the plan's ceiling is {totals.ceiling:g}",
            ),
            (
                f"{equal} of {len(found.ledger)}",
                "weeks in which aircraft and aggregator agree on every micro-epsilon",
            ),
            (f"{rejected:,}", "planted bad records or rows in quarantine, each with a reason"),
        ]
    )


def sharpening(found: Findings) -> str:
    """One window as rungs arrive."""
    first = found.sharpening[0].releases
    charts = [page.figure(figures.sharpening(one), title=one.label) for one in found.sharpening]
    return section(
        "The same answers, released three times, get sharper",
        f"<p>One window of 28 days, as the aggregator saw it on {len(found.runs) - 1} days. An "
        "aircraft releases an "
        "answer first at ε 0.5, then at ε 1, then at ε 2. The rungs are drawn together, so that "
        "all three cost no more than the last one. When a stronger rung arrives it replaces the "
        f"weaker one; after {first[-1].day:.0f} days every report is at its last rung.</p>",
        key(
            (page.ESTIMATE_KEY, "estimate and 95 % interval"),
            (page.TRUTH_KEY, "truth of the reports counted so far"),
            (page.swatch_key("rung0"), "reports at ε 0.5"),
            (page.swatch_key("rung1"), "at ε 1"),
            (page.swatch_key("rung2"), "at ε 2"),
        ),
        page.side_by_side(*charts),
    )


def carriers(found: Findings) -> str:
    """The carriers of one window."""
    label = figures.date(found.carriers_window, "%-d %B")
    names = [f"{found.airlines.get(one.label, one.label)} {one.label}" for one in found.carriers]
    names = [name.replace(" Inc.", "").replace(" Co.", "") for name in names]
    names = [
        "other" if one.label == "other" else name
        for one, name in zip(found.carriers, names, strict=True)
    ]
    return section(
        "Which airlines fly",
        f"<p>The 28 days from {label}: each aircraft's first flight of the week, "
        f"{found.carriers[0].n:,} reports. The interval is about the flights that were reported "
        "(short stroke). All flights (amber) differ, because an aircraft that flies five times a "
        "week also reports once.</p>",
        key(
            (page.ESTIMATE_KEY, "estimate and 95 % interval"),
            (page.TRUTH_KEY, "truth of the counted reports"),
            (page.EVERY_KEY, "truth of all flights"),
        ),
        page.figure(
            figures.rows(
                found.carriers,
                names,
                "",
                "share of reports",
                "Airlines by share with intervals and truth",
                left=210,
                width=1080,
                pitch=24,
            ),
            wide=True,
        ),
    )


def over_the_year(found: Findings) -> str:
    """Four quantities, window by window."""
    charts = [page.figure(figures.windows(one), title=one.label) for one in found.series.values()]
    return section(
        "The year in windows of 28 days",
        "<p>Each mark is made from some 2,000 reports. A red dot would be an interval that "
        "misses its truth: about one in twenty does. The first window began before the data and "
        "has few reports. Cancelled flights are rarer among the counted reports than among all, "
        "because almost a third of them name no aircraft.</p>",
        key(
            (page.ESTIMATE_KEY, "estimate and 95 % interval"),
            (page.stroke_key("truth"), "truth of the counted reports"),
            (page.EVERY_LINE_KEY, "truth of all flights"),
        ),
        page.side_by_side(*charts[:2]),
        page.side_by_side(*charts[2:]),
        *_withheld(found),
    )


def _withheld(found: Findings) -> Iterator[str]:
    """Yield a list of the windows of which nothing is drawn, and why."""
    if found.withheld:
        yield "<p>Withheld, and so not drawn:</p><ul>"
        for metric, start, why in found.withheld:
            from_day = figures.date(start, "%-d %B")
            yield f"<li>{escape(metric)}, from {from_day}: {escape(why)}</li>"
        yield "</ul>"


def delays(found: Findings) -> str:
    """The distribution of delays from one bit a report."""
    lines = [
        [
            one.label,
            plain(one.value),
            f"{plain(one.low)} to {plain(one.high)}",
            plain(one.kept),
            plain(one.every),
        ]
        for one in found.quantiles
    ]
    heads = ["share", "leave by, min", "95 % interval", "truth, counted", "truth, all"]
    return section(
        "How late, from one noisy bit a report",
        "<p>For each answer a public threshold is drawn at random, and the aircraft says only "
        "whether its delay was above it: yes, no, or cancelled, and that with noise. Thresholds "
        "all along the range add up to the whole distribution.</p>",
        page.side_by_side(
            page.figure(
                figures.delay_curve(found.curve),
                "Blue: estimate with a 95 % band at each point. Thin line: truth of the counted "
                "reports. Delays are clipped to −30 and 180 minutes.",
            ),
            page.table(heads, lines, [1, 2, 3, 4]),
        ),
    )


def destinations(found: Decoding) -> str:
    """The decoded destinations."""
    unexplained = found.unexplained
    return section(
        "Where they fly: names decoded from noisy bits",
        f"<p>A destination is sent as 128 noisy bits of a Bloom filter. The aggregator tests "
        f"{found.candidates:,} airports against the year's bits, corrected for so many tests: an "
        f"airport is found half of the time at a share of {percent(found.floor)}. Airports flown "
        f"to and found: {found.count(Fate.FOUND)}; missed, though above that floor: "
        f"{found.count(Fate.MISSED)}; below it, so that they cannot be told from noise: "
        f"{found.count(Fate.UNDETECTABLE)}; found where nobody went: {found.count(Fate.FALSE)}. "
        f"{len(found.unlisted)} more destinations ({', '.join(found.unlisted)}) are not in the "
        f"list at all; they took {percent(unexplained.kept)} of the reports, and the decoder "
        f"leaves {percent(unexplained.value)} unexplained, with an interval too wide to say more "
        f"({percent(unexplained.low)} to {percent(unexplained.high)}).</p>",
        key(
            (page.ring_key("stop found"), "found"),
            (page.ring_key("stop missed"), "missed"),
            (page.ring_key("stop undetectable"), "below the detection floor"),
            (
                '<circle cx="17" cy="8" r="1.6" fill="currentColor" opacity=".5"/>',
                "any of the airports that were tested",
            ),
        ),
        page.figure(
            figures.destination_map(found),
            "The land is drawn by its airports. Areas of circles follow the true share.",
            wide=True,
        ),
        key(
            (page.ESTIMATE_KEY, "estimate and 95 % interval"),
            (page.TRUTH_KEY, "truth of the counted reports"),
            (page.EVERY_KEY, "truth of all flights"),
        ),
        page.figure(
            figures.destination_ranks(found),
            "Estimates (unbiased, so small ones may be negative) with 95 % intervals. Grey: not "
            "significant. The dashed line is the detection floor.",
            wide=True,
        ),
        f"<p class='soft'>Undetectable here: {hidden(found)}.</p>",
    )


def hidden(found: Decoding) -> str:
    """Name the destinations below the detection floor, largest first."""
    below = [stop for stop in found.destinations if stop.fate is Fate.UNDETECTABLE]
    below.sort(key=lambda stop: -stop.share.kept)
    return ", ".join(f"{stop.code} {percent(stop.share.kept)}" for stop in below) or "none"
