"""Conditions on a metric: no plan loads that its mechanisms and ladders cannot honour.

Every problem names the level, the value found and what is allowed. The standard library alone is
needed, so a device refuses the same plans as the compiler.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from sotto.errors import ParameterError
from sotto.plan.durations import duration_text
from sotto.plan.measures import KINDS, NO_STEP, RECORDED, edge_labels
from sotto.plan.metric import TYPES, CompiledMetric, Parameter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mechanisms.base import Mechanism

#: Characters that move the rest of a line elsewhere: ends of lines, a terminal's commands, and
#: those that turn the direction of writing. To compile a regular expression takes a device as long
#: as this module does.
_CONTROLS = frozenset(
    map(chr, [*range(0x20), *range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)])
)
MAX_LEVELS = 8
#: A century: no duration is longer, so that sums of times stay far within 64 bits.
MAX_DURATION = 36_525 * 86_400_000
#: The year 9999.
MAX_TIME = 253_402_300_800_000
MAX_LIMIT = 1_000_000
#: The most panels into which devices are divided.
MAX_PANEL = 1000
#: A time rounded to less is as good as exact, and every period has states of its own.
MIN_RESOLUTION = 1000
MIN_PERIOD = 60_000
#: The most cells of a count vector; aggregators keep one for each window and level.
MAX_COUNTS = 1 << 24
#: The most cells of all count vectors of a metric that are open at a time: 512 MiB.
MAX_OPEN_COUNTS = 1 << 26
#: The largest minimum of reports that a plan may ask for.
MAX_MINIMUM_REPORTS = 10**9
#: An epsilon of a million, in micro-epsilon: no ceiling is higher.
MAX_CEILING = 10**12
MAX_DOMAIN = 1 << 17
#: The most characters of a text for people.
MAX_WORDS = 1024
#: No more than half of the names that are called significant may be false on average.
MAX_FALSE_DISCOVERY = 0.5
#: Subjects of a value, in the terms of the forms of application stores
#: (:mod:`sotto.disclosure.forms`).
DATA_TYPES = (
    *("performance", "crash", "diagnostics", "interaction", "usage", "search", "content"),
    *("health", "fitness", "location", "purchases", "browsing", "device", "other"),
)
#: The bound on the points of an ordinal and the coordinates of a vector.
MAX_BOUND = 1e100
#: Types whose ``domain`` lists their values.
_LISTED = frozenset({"category", "ordinal", "top_item"})
#: Types whose values are clipped to a ``range``.
_CLIPPED = frozenset({"number", "ordinal", "vector"})
#: Types that have a symbol for a missing value whatever the mechanism.
_WITH_MISSING = frozenset({"category", "boolean", "string", "number"})
#: The name of an instrument, as OpenTelemetry's specification has it.
_INSTRUMENT = r"[A-Za-z][A-Za-z0-9_.\-/]{0,254}"
NAME_RULE = "letters, digits, '_', '.' and '-', at most 128, a letter or digit first"


def is_name(text: str) -> bool:
    """Whether a text is a name, by :data:`NAME_RULE`.

    >>> is_name("dest-2.delay_ms"), is_name("-delay"), is_name("délai"), is_name("a" * 129)
    (True, False, False, False)
    """
    letters = text.replace("_", "").replace(".", "").replace("-", "")
    return text.isascii() and text[:1].isalnum() and letters.isalnum() and len(text) <= 128


def amount(micro: int) -> str:
    """Return micro-epsilon as people write epsilon.

    >>> amount(500_000), amount(1_000_000)
    ('0.5', '1.0')
    """
    return str(micro / 1_000_000)


def metric_problems(metric: CompiledMetric, period: int, resolution: int) -> list[str]:
    """Return what is wrong with a metric of a plan with such a period and resolution (ms)."""
    problems = []
    if not is_name(metric.name):
        problems.append(f": its name must consist of {NAME_RULE}")
    if metric.type not in TYPES:
        return [*problems, f": type {metric.type!r} must be one of {', '.join(TYPES)}"]
    if not 0 < metric.window <= MAX_DURATION or metric.window % max(resolution, 1):
        problems.append(
            f": window {duration_text(metric.window)} must be a multiple of the resolution, "
            f"{duration_text(resolution)}, and at most 36525d"
        )
    if not 1 <= metric.limit <= MAX_LIMIT:
        problems.append(f": repeat: limit {metric.limit} must be in [1, {MAX_LIMIT}]")
    if not 1 <= metric.panel <= MAX_PANEL:
        problems.append(f": panel 1/{metric.panel} must be 1/N with N in [1, {MAX_PANEL}]")
    problems += _repeat_problems(metric)
    problems += _ladder_problems(metric, period)
    texts = words_problems(description=metric.description, purpose=metric.purpose)
    problems += [f": {each}" for each in texts]
    if metric.unit is not None and not stays_in_line(metric.unit):
        problems.append(": unit must be on one line")
    rate = metric.false_discovery_rate
    if rate is not None and metric.type != "string":
        problems.append(f": {_named(metric.type)} has no false_discovery_rate")
    elif rate is not None and not 0 < rate <= MAX_FALSE_DISCOVERY:
        problems.append(
            f": false_discovery_rate {rate:g} must be above 0 and at most {MAX_FALSE_DISCOVERY}"
        )
    if metric.data_type is not None and metric.data_type not in DATA_TYPES:
        problems.append(f": data_type {metric.data_type!r} must be one of {', '.join(DATA_TYPES)}")
    problems += _otel_problems(metric)
    of_type = [*_domain_problems(metric), *_range_problems(metric), *_question_problems(metric)]
    # Labels can only be made of a sound domain or range, and a sound number of points.
    problems += of_type + _spec_problems(metric, sound=not of_type)
    # A measure is checked only where the rest is sound.
    return problems or measure_problems(metric, period)


def _otel_problems(metric: CompiledMetric) -> list[str]:
    """Return what is wrong with the instrument that feeds a metric."""
    source = metric.otel
    if source is None:
        return []
    measure = metric.measure
    named = measure is None or (measure.method == "record" and measure.of == metric.name)
    if not named and measure is not None and measure.kind != "count":
        return [
            ": otel feeds a count, or a measure of what is recorded under the metric's own name"
        ]
    problems = []
    if not re.fullmatch(_INSTRUMENT, source.instrument):
        problems.append(
            f": otel: instrument {source.instrument!r} must be the name of an instrument: letters, "
            "digits, '_', '.', '-' and '/', at most 255, a letter first"
        )
    numeric = metric.numeric
    if not numeric and metric.type != "category":
        problems.append(
            ": otel feeds a number, an ordinal with a range or edges, or a category, "
            f"not {_named(metric.type)}"
        )
    elif numeric and source.attribute is not None:
        problems.append(
            f": otel: {_named(metric.type)} is the measured amount: leave out attribute"
        )
    elif not numeric and not (source.attribute and are_words(source.attribute)):
        problems.append(": otel: a category needs the attribute whose value it is, on one line")
    return problems


def measure_problems(metric: CompiledMetric, period: int) -> list[str]:
    """Return what is wrong with the measure of a metric that is sound without it."""
    measure = metric.measure
    if measure is None:
        return [": stored: true is for a metric that has a measure"] if metric.stored else []
    kind, problems = measure.kind, []
    if kind not in KINDS:
        return [f": measure {kind!r} must be one of {', '.join(KINDS)}"]
    fits = {"furthest": not metric.numeric and metric.type == "ordinal"}
    fits["used"] = metric.type == "boolean"
    if kind in ("count", "last"):
        fits[kind] = metric.numeric or metric.type == "boolean"
    if not fits.get(kind, metric.numeric) or (kind == "age" and metric.edges is None):
        problems.append(f": {_named(metric.type)} like this cannot be the measure {kind}")
    if metric.kind != "first":
        problems.append(": repeat: a measure is one a period, so that it must be {once: first}")
    if metric.stored and measure.responds:
        problems.append(": measure used keeps no true value on the device: leave out stored")
    if not (metric.stored or measure.responds):
        problems.append(
            f": measure {kind} keeps true values in the device's file until they are drawn from: "
            "say so with stored: true"
        )
    if bool(measure.of) != (kind not in ("furthest", "age")) or (
        measure.of and not is_name(measure.of)
    ):
        problems.append(f": measure {kind} {measure.of!r} must be a name: {NAME_RULE}")
    if kind == "age" and (measure.every <= 0 or measure.every % period):
        problems.append(
            f": measure age {duration_text(measure.every)} must be a multiple of the period, "
            f"{duration_text(period)}"
        )
    if kind == "age" and metric.edges != tuple(range(len(metric.edges or ()))):
        problems.append(": measure age has the edges 0, 1, 2 and so on, one for each age")
    if kind == "furthest" and (metric.domain or ("",))[0] != NO_STEP:
        problems.append(f": the first value of the measure furthest must be {NO_STEP!r}")
    if kind in ("furthest", "age") and metric.spec["name"] != "grr":
        problems.append(f": measure {kind} needs the mechanism grr: its estimates are ratios")
    if kind in RECORDED and metric.missing is (kind == "sum"):
        problems.append(
            ": a sum is never missing: leave out missing"
            if metric.missing
            else f": measure {kind} needs missing: true, for a period in which nothing is recorded"
        )
    if metric.missing and kind not in RECORDED:
        problems.append(f": measure {kind} is never missing: leave out missing")
    return problems


def source_problems(metrics: Sequence[CompiledMetric]) -> list[str]:
    """Return which names are recorded both as a metric's values and for the measure of another."""
    plain = {metric.name for metric in metrics if metric.measure is None}
    return [
        f"metric {metric.name!r}: measure {metric.measure.kind} {metric.measure.of!r} cannot be of "
        "a name that is a metric without a measure"
        for metric in metrics
        if metric.measure is not None and metric.measure.method == "record"
        if metric.measure.of in plain
    ]


def words_problems(**texts: str | None) -> list[str]:
    """Return what is wrong with texts for people, by name."""
    return [
        f"{name} must be a text on one line, of 1 to {MAX_WORDS} characters"
        for name, text in texts.items()
        if not are_words(text)
    ]


def are_words(text: str | None) -> bool:
    """Whether a text can stand in a sentence, a table and a terminal; None is no text."""
    return text is None or (
        0 < len(text) <= MAX_WORDS and " ".join(text.split()) == text and stays_in_line(text)
    )


def group_problems(
    groups: Sequence[tuple[str, str]], metrics: Sequence[CompiledMetric]
) -> list[str]:
    """Return what is wrong with groups, each a name and a text.

    A plan that has groups puts each of its metrics into one.
    """
    named = dict(groups)
    problems = []
    for name, text in groups:
        if not is_name(name):
            problems.append(f"group {name!r} must be a name: {NAME_RULE}")
        if not are_words(text):
            problems.append(
                f"group {name!r}: its text must be on one line, of 1 to {MAX_WORDS} characters"
            )
        if all(metric.group != name for metric in metrics):
            problems.append(f"group {name!r} has no metric")
    return problems + [
        f"metric {metric.name!r}: group {metric.group!r} must be one of the plan's groups, "
        f"{', '.join(named) or 'of which there are none'}"
        for metric in metrics
        if metric.group not in (named or (None,))
    ]


def stays_in_line(text: str) -> bool:
    """Whether a text leaves what is shown before and behind it as it is."""
    return _CONTROLS.isdisjoint(text)


def in_line(text: str) -> str:
    r"""Return a text as it is shown: one that would not stay in its line as a literal of Python.

    >>> in_line("dark"), in_line("dark\x1b[8m")
    ('dark', "'dark\\x1b[8m'")
    """
    return text if stays_in_line(text) else repr(text)


def _repeat_problems(metric: CompiledMetric) -> list[str]:
    kinds = ("first", "reservoir", "every", "constant")
    if metric.kind not in kinds:
        *most, last = kinds
        return [f": repeat: kind {metric.kind!r} must be {', '.join(most)} or {last}"]
    if metric.kind != "every" and metric.limit != 1:
        return [f": repeat: {metric.kind} is once a period, not {metric.limit} times"]
    if metric.type == "top_item" and metric.kind != "first":
        return [": repeat: a top item is one a period, so that it must be {once: first}"]
    return _response_problems(metric) if metric.holds_response else []


def _response_problems(metric: CompiledMetric) -> list[str]:
    """Return what is wrong with a response that stays on the device, and its noise in reports."""
    from mechanisms.registry import supports_constant

    name = metric.spec.get("name")
    constant = metric.kind == "constant"
    whose = "a constant metric" if constant else "the measure used"
    response = "permanent response" if constant else "response on the device"
    if not supports_constant(metric.spec):
        return [
            f": repeat: {name} cannot be constant: its public coins change with the period, and a "
            f"permanent response was drawn under those of the first"
            if constant
            else f": measure used needs a mechanism without public coins, which {name} has"
        ]
    if len(metric.ladder) < 2:
        return [
            f": {'repeat' if constant else 'ladder'}: {whose} has at least two levels, the last of "
            f"which is its {response} and is never sent"
        ]
    *_, sent, held = metric.ladder
    if held.after != sent.after:
        return [
            f", level {len(metric.ladder)}: after {duration_text(held.after)} must be level "
            f"{len(metric.ladder) - 1}'s {duration_text(sent.after)}: the {response} of "
            f"{whose} is never sent"
        ]
    return []


def _ladder_problems(metric: CompiledMetric, period: int) -> list[str]:
    ladder = metric.ladder
    if not 1 <= len(ladder) <= MAX_LEVELS:
        return [f": a ladder has 1 to {MAX_LEVELS} levels, not {len(ladder)}"]
    problems = []
    for number, level in enumerate(ladder, start=1):
        if not 0 < level.epsilon <= MAX_CEILING:
            problems.append(f", level {number}: epsilon {amount(level.epsilon)} must be above 0")
        if not 0 <= level.after <= MAX_DURATION:
            problems.append(
                f", level {number}: after {duration_text(level.after)} must be in [0d, 36525d]"
            )
    for number, (weak, strong) in enumerate(pairwise(ladder), start=1):
        if not strong.epsilon > weak.epsilon:
            problems.append(
                f", level {number + 1}: epsilon {amount(strong.epsilon)} must be greater than "
                f"level {number}'s {amount(weak.epsilon)}"
            )
        if not strong.after >= weak.after:
            problems.append(
                f", level {number + 1}: after {duration_text(strong.after)} must be at least "
                f"level {number}'s {duration_text(weak.after)}"
            )
    if metric.kind == "reservoir" and ladder[0].after < period:
        problems.append(
            f", level 1: after {duration_text(ladder[0].after)} must be at least the period, "
            f"{duration_text(period)}: a reservoir may replace its value until that ends"
        )
    return problems


def mechanism_problems(metric: CompiledMetric, cells: int = 1) -> list[str]:
    """Return what is wrong with the mechanism of a metric whose parameters are sound.

    ``cells`` is the number of the plan's cells, of which each has counts of its own.
    """
    try:
        mechanism = metric.mechanism
    except ParameterError as error:
        return [f": {error}"]
    problems = []
    if not 0 < mechanism.payload_width <= 0xFFFF:
        problems.append(f": payloads of {mechanism.payload_width} bytes; at most 65535 are allowed")
    if mechanism.count_length > MAX_COUNTS:
        problems.append(f": {mechanism.count_length} counts; at most {MAX_COUNTS} are allowed")
    windows = open_windows(metric.horizon, metric.window)
    counts = windows * len(metric.ladder) * mechanism.count_length * cells
    if counts > MAX_OPEN_COUNTS:
        segments = f", times {cells} cells of segments" if cells > 1 else ""
        problems.append(
            f": {windows} windows of {duration_text(metric.window)} within the horizon of "
            f"{duration_text(metric.horizon)}, times {len(metric.ladder)} levels, times "
            f"{mechanism.count_length} counts{segments}, are {counts} counts; at most "
            f"{MAX_OPEN_COUNTS} are allowed"
        )
    before = 0
    for number, level in enumerate(metric.ladder):
        certified = mechanism.certified(number)
        if not before < certified <= level.epsilon:
            problems.append(
                f", level {number + 1}: certified epsilon {amount(certified)} must be above "
                f"{amount(before)} and at most the nominal {amount(level.epsilon)}"
            )
        before = certified
    return problems


def open_windows(horizon: int, window: int) -> int:
    """Return the most windows of a metric for which reports may still come at a time.

    >>> open_windows(15, 7)
    4
    """
    return max(-(-horizon // window) + 1, 1)


def _domain_problems(metric: CompiledMetric) -> list[str]:
    listed = metric.type in _LISTED and metric.range is None
    edges = metric.edges
    if edges is not None and not listed:
        return [f": {_named(metric.type)} like this has no edges"]
    if edges is not None and (
        not 2 <= len(edges) <= MAX_DOMAIN or any(low >= high for low, high in pairwise(edges))
    ):
        return [f": edges must be 2 to {MAX_DOMAIN} whole numbers, in increasing order"]
    if not listed:
        return [f": {_named(metric.type)} has no domain"] if metric.domain is not None else []
    domain = metric.domain or ()
    if not 1 <= len(domain) <= MAX_DOMAIN:
        return [f": domain must have 1 to {MAX_DOMAIN} values, not {len(domain)}"]
    problems = []
    if not all(0 < len(value) <= 256 for value in domain):
        problems.append(": the values of a domain have 1 to 256 characters")
    twice = sorted(value for value, times in Counter(domain).items() if times > 1)
    if twice:
        problems.append(f": domain has {', '.join(map(repr, twice))} more than once")
    if metric.missing and "missing" in domain:
        problems.append(": a domain cannot have the value 'missing' where missing is true")
    problems += _outside_problems(metric, domain)
    if len(metric.labels) < 2:
        problems.append(
            f": {_named(metric.type)} has at least two symbols, 'other' and 'missing' included"
        )
    return problems


def _outside_problems(metric: CompiledMetric, domain: tuple[str, ...]) -> list[str]:
    """Return what is wrong with the place of values that are not in the domain.

    Values in order have no "other": one that is not listed becomes one of them, or missing.
    """
    if metric.edges is not None:
        problems = [] if metric.outside == "clip" else [": outside must be 'clip' where edges are"]
        if domain != edge_labels(metric.edges):
            problems.append(": the domain must name the bins between its edges")
        return problems
    place = "other" if metric.type != "ordinal" else "missing"
    if metric.outside in domain or (
        metric.outside == place and (metric.type != "ordinal" or metric.missing)
    ):
        return []
    others = f"{place!r} or " if metric.type != "ordinal" or metric.missing else ""
    return [f": outside {metric.outside!r} must be {others}a value of the domain"]


def _range_problems(metric: CompiledMetric) -> list[str]:
    if metric.type not in _CLIPPED or metric.domain is not None:
        problems = []
        if metric.range is not None:
            problems.append(f": {_named(metric.type)} has no range")
        if metric.unit is not None and not metric.numeric:
            problems.append(f": {_named(metric.type)} has no unit")
        if metric.type not in _LISTED and metric.outside is not None:
            problems.append(f": {_named(metric.type)} has no outside")
        return problems
    low, high = metric.range or (math.nan, math.nan)
    problems = []
    # NaN fails every comparison; the difference of two finite numbers may still overflow.
    if not (low < high and math.isfinite(high - low)):
        problems.append(f": range [{low}, {high}] must be two finite numbers, low below high")
    elif metric.type != "number" and not (
        max(-low, high) <= MAX_BOUND and high - low >= 1 / MAX_BOUND
    ):
        problems.append(
            f": range [{low}, {high}] must lie in [-{MAX_BOUND:g}, {MAX_BOUND:g}] and be at least "
            f"{1 / MAX_BOUND:g} wide for {_named(metric.type)}: its squares must be finite"
        )
    if metric.outside != "clip":
        problems.append(f": outside {metric.outside!r} must be 'clip' for {_named(metric.type)}")
    return problems


def _question_problems(metric: CompiledMetric) -> list[str]:
    if metric.type != "survey":
        return [": only a survey has a question"] if metric.question is not None else []
    if not 0 < len(metric.question or "") <= 1024:
        return [": a survey has a question of 1 to 1024 characters"]
    return []


def _spec_problems(metric: CompiledMetric, *, sound: bool) -> list[str]:
    from mechanisms.registry import REGISTRY, mechanism_class, mechanisms_for

    name = metric.spec.get("name")
    known = isinstance(name, str) and name in REGISTRY
    if not known or metric.type not in mechanism_class(name).types:
        allowed = ", ".join(mechanisms_for(metric.type))
        return [f": mechanism {name!r} must be one of {allowed} for {_named(metric.type)}"]
    kind = mechanism_class(name)
    if metric.type == "ordinal" and metric.range is not None:
        size = metric.spec.get("domain_size")
        if type(size) is int and not 2 <= size - metric.missing <= MAX_DOMAIN:
            return [f": points {size - metric.missing} must be at least 2 and at most {MAX_DOMAIN}"]
    problems = _parameter_problems(metric, str(name), kind)
    if metric.missing and metric.type not in _WITH_MISSING and "missing" not in kind.parameters():
        problems.append(f": {_named(metric.type)} by {name} cannot be missing")
    if sound and not problems:
        problems = _symbol_problems(metric)
    return problems


def _parameter_problems(metric: CompiledMetric, name: str, kind: type[Mechanism]) -> list[str]:
    spec = metric.spec
    del spec["name"]
    fields = kind.parameters()
    extra, lacking = sorted(spec.keys() - fields), sorted(fields.keys() - spec)
    if extra or lacking:
        wrong = f", not {', '.join(extra)}" if extra else ""
        wrong += f"; the plan lacks {', '.join(lacking)}" if lacking else ""
        wanted = ", ".join(sorted(fields)) or "(none)"
        return [f": mechanism {name} has the parameters {wanted}{wrong}"]
    problems = []
    for key, value in spec.items():
        type_ = fields[key]
        if key == "missing":
            if value is not metric.missing:
                problems.append(f": mechanism {name}: missing must be {metric.missing}")
        elif not (type(value) is type_ and _bounded(value)):
            problems.append(f": mechanism {name}: {key} {_brief(value)} must be {_WANTED[type_]}")
    return problems


def _brief(value: Parameter) -> str:
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _bounded(value: Parameter) -> bool:
    if isinstance(value, tuple):
        return 0 < len(value) <= MAX_DOMAIN
    return isinstance(value, bool | str) or 0 <= value <= MAX_DOMAIN


_WANTED = {
    int: f"a number in [0, {MAX_DOMAIN}]",
    bool: "true or false",
    str: "text",
    tuple: f"a list of 1 to {MAX_DOMAIN} numbers",
}


def _symbol_problems(metric: CompiledMetric) -> list[str]:
    """Return what is wrong with labels, and with their number, which the mechanism must have."""
    size = metric.spec.get("domain_size")
    ranged = metric.type == "ordinal" and metric.range is not None
    if ranged and len(set(metric.labels)) < len(metric.labels):
        return [f": its {len(metric.labels)} points are too close to be distinguished"]
    if size is not None and size != len(metric.labels):
        return [
            f": mechanism {metric.spec['name']}: domain_size {size} must be the number of symbols, "
            f"{len(metric.labels)}"
        ]
    return []


def _named(kind: str) -> str:
    """Return a type with its article.

    >>> _named("ordinal"), _named("top_item")
    ('an ordinal', 'a top_item')
    """
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
