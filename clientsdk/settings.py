"""How a client is configured: arguments, then variables of the environment, then defaults.

Variables are read once, when a client is made. Some are about privacy: the switches and the two
ceilings. The stricter of them and of the app's own holds, in whatever form, and one that cannot be
understood is an error. Any other that cannot be understood is logged once, without what it holds,
and its default taken.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping
from enum import Enum

from clientsdk import diagnostics
from clientsdk.lifecycle import NoFork
from mechanisms.frozen import frozen, replace
from sotto.clocks import now_ms
from sotto.errors import (
    ParameterError,
    PlanError,
    did_you_mean,
    is_int,
    is_number,
    seconds_of,
    type_of,
    unboxed,
    wrong_type,
)
from sotto.plan.compiled import Ceilings, CompiledPlan, read_without_mechanisms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Any, TypeAlias, TypedDict

    from clientsdk.publishers import Publisher
    from clientsdk.stats import OutcomeTally
    from mechanisms.randomness import Source

    class ClientOptions(TypedDict, total=False):
        """The arguments that a client may be made without."""

        clock: Callable[[], float]
        ceilings: GivenCeilings | None
        background: bool | None
        quota: Quota | None
        settings: Settings | None
        expect: str | None
        segments: Mapping[str, str | None] | None


#: Two epsilons, of a period and of a lifetime; or what a plan or a ledger has.
GivenCeilings: TypeAlias = tuple[float, float] | Ceilings

#: Micro-epsilon; no plan has a use for less, or for more.
LEAST_CEILING, MOST_CEILING = 1_000, 100_000_000_000
#: Pages of the smallest file that holds a ledger and something to send, in bytes.
SMALLEST_QUOTA = 1 << 17
_SWITCH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}
_FINER = {"milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
#: The longest age and the longest time of a flush or close, in seconds: more are milliseconds.
_LONGEST_AGE, LONGEST = 731 * 86_400, 600
_DECIMALS = 6
#: Variables of continuous integration: the names that ``ci-info`` takes for any service, then those
#: of its services, but for two of hosts that set them for running servers too (RENDER, VERCEL).
CI = (
    *("CI", "CONTINUOUS_INTEGRATION", "BUILD_ID", "BUILD_NUMBER", "RUN_ID", "CI_APP_ID", "CI_NAME"),
    *("AC_APPCIRCLE", "AGOLA_GIT_REF", "APPCENTER_BUILD_ID", "APPVEYOR", "bamboo_planKey"),
    *("BITBUCKET_COMMIT", "BITRISE_IO", "BUDDY_WORKSPACE_ID", "BUILDER_OUTPUT", "BUILDKITE"),
    *("CF_BUILD_ID", "CF_PAGES", "CI_BUILD_ID", "CI_BUILD_NUMBER", "CI_XCODE_PROJECT", "CIRCLECI"),
    *("CIRRUS_CI", "CM_BUILD_ID", "CODEBUILD_BUILD_ARN", "DRONE", "DSARI", "EARTHLY_CI"),
    *("EAS_BUILD", "GERRIT_PROJECT", "GITEA_ACTIONS", "GITHUB_ACTIONS", "GITLAB_CI"),
    *("GO_PIPELINE_LABEL", "HARNESS_BUILD_ID", "HUDSON_URL", "JENKINS_URL", "LAYERCI", "MAGNUM"),
    *("NETLIFY", "NEVERCODE", "NOW_BUILDER", "PROW_JOB_ID", "RELEASE_BUILD_ID", "SAILCI"),
    *("SCREWDRIVER", "SEMAPHORE", "SHIPPABLE", "STRIDER", "SYSTEM_TEAMFOUNDATIONCOLLECTIONURI"),
    *("TDDIUM", "TEAMCITY_VERSION", "TF_BUILD", "TRAVIS", "VELA", "WORKERS_CI", "XCS"),
)


class Forgetful(Enum):
    """An alternative to a path for ``Client(state=...)``: an app must name that choice."""

    NO_LIFETIME_BOUND = "no lifetime bound survives this process"
    """Keeps everything in memory. With the client its ledger, ceilings, pseudonym and what was not
    sent are gone; so is a withdrawal of consent. Every other client, also in the same process, is a
    new device with a whole lifetime to spend: what one person gives over many has no bound."""


NO_LIFETIME_BOUND = Forgetful.NO_LIFETIME_BOUND


@frozen
class Quota:
    """How much a device may keep for sending, and for how long; ParameterError if out of range.

    ``bytes``, at least 131,072, are those of the state file, or of memory in its stead. Values
    beyond them are refused as ``store_full`` and nothing is charged for them; what was accepted is
    never dropped. A report that has been due for longer than ``age``, seconds or a timedelta of at
    most two years, and was not delivered is erased with the levels that would follow. In any case
    nothing is kept beyond the time at which the aggregator would refuse it as late. The epsilon of
    an erased report stays reserved, and spent if it was charged for.

    >>> from datetime import timedelta
    >>> Quota(age=timedelta(days=30)).age_ms
    2592000000
    """

    bytes: int = 10 << 20
    age: float | timedelta | None = None

    def __post_init__(self) -> None:
        if not is_int(self.bytes):
            raise wrong_type("quota: bytes", "an int", self.bytes)
        if not self.bytes >= SMALLEST_QUOTA:
            raise ParameterError(f"quota: bytes {self.bytes} must be at least {SMALLEST_QUOTA}")
        if self.age is not None:
            seconds_of("quota: age", self.age, 0.001, _LONGEST_AGE)

    @property
    def age_ms(self) -> int | None:
        """The age in whole milliseconds."""
        return None if self.age is None else math.ceil(seconds_of("quota: age", self.age) * 1000)


@frozen
class Settings:
    """The configuration of a client; ParameterError if one of them is out of range.

    Settings that an app makes leave out the environment, but for the variables about privacy:
    a client that is given settings takes the stricter of both (:meth:`stricter_with_environment`).

    Parameters
    ----------
    disabled : bool
        The kill switch: nothing is recorded, nothing sent, no file touched, consent unchanged.
    ceiling_period, ceiling_lifetime : float, in [0.001, 100,000], optional
        In epsilon. They lower the plan's, as the client's own ``ceilings`` do.
    background : bool
        Whether a background thread sends reports when they are due.
    quota : Quota
    close_timeout : float or timedelta, in [0, 600]
        Seconds, for a :meth:`~clientsdk.Client.close` that is given none.
    log : {"debug", "info", "warning", "error", "off"}, optional
        What the logger ``clientsdk`` of this process lets pass; None leaves it as the app has it.
    in_ci : bool
        Whether continuous integration is a place like any other. Otherwise its variables, such as
        ``CI``, switch the SDK off: nobody there has agreed, and its runs are not a person's.

    Examples
    --------
    >>> Settings.from_environment(environ={"SOTTO_CLOSE_TIMEOUT": "0.5"}).close_timeout
    0.5
    """

    disabled: bool = False
    ceiling_period: float | None = None
    ceiling_lifetime: float | None = None
    background: bool = True
    quota: Quota = Quota()
    close_timeout: float | timedelta = 1.0
    log: str | None = None
    in_ci: bool = False

    def __post_init__(self) -> None:
        for what in ("disabled", "background", "in_ci"):
            if not isinstance(getattr(self, what), bool):
                raise wrong_type(what, "True or False", getattr(self, what))
        if not isinstance(self.quota, Quota):
            raise wrong_type("quota", "a Quota, such as Quota(age=30 * 86_400)", self.quota)
        for what in ("ceiling_period", "ceiling_lifetime"):
            if getattr(self, what) is not None:
                micro_of(what, getattr(self, what))
        if (self.ceiling_period or 0) > (self.ceiling_lifetime or math.inf):
            raise ParameterError(
                "ceiling_period must be at most ceiling_lifetime; got more: raise or lower one"
            )
        seconds_of("close_timeout", self.close_timeout, 0, LONGEST)
        if self.log is not None and self.log not in [*diagnostics.LEVELS]:
            near = did_you_mean(self.log, diagnostics.LEVELS)
            known = ", ".join(diagnostics.LEVELS)
            raise ParameterError(f"log must be one of {known}, or None{near}")

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str] | None = None, **arguments: Any
    ) -> Settings:
        """Return settings from arguments, variables where there is none, and defaults.

        ``environ`` is ``os.environ`` unless given. The stricter of argument and variable is taken
        for switches and ceilings; ParameterError if one of them is not as it should be.
        """
        settings = _read(cls(**arguments), environ, arguments, privacy=False)
        return settings.stricter_with_environment(environ)

    def stricter_with_environment(
        self, environ: Mapping[str, str] | None = None, *, simulated: bool = False
    ) -> Settings:
        """Return these settings, with switch and ceilings at least as strict as the variables say.

        ``environ`` and errors are as for :meth:`from_environment`. A ``simulated`` device is
        nobody's: only variables that begin with ``SOTTO_`` switch it off.
        """
        environment = _read(Settings(), environ, {}, privacy=True)
        disabled = self.disabled or self.switched_off_by(environ, simulated=simulated) is not None
        lifetime = _lower(self.ceiling_lifetime, environment.ceiling_lifetime)
        period = _lower(self.ceiling_period, environment.ceiling_period)
        if period is not None:
            period = _lower(period, lifetime)
        return replace(self, disabled=disabled, ceiling_period=period, ceiling_lifetime=lifetime)

    def switched_off_by(
        self, environ: Mapping[str, str] | None = None, *, simulated: bool = False
    ) -> str | None:
        """Return which variable switches the SDK off, whatever an app passes; None if none does.

        ``environ``, ``simulated`` and errors are as for :meth:`stricter_with_environment`.
        """
        given = _given(environ)
        for name, variable in VARIABLES.items():
            if variable.field == "disabled" and name in given and variable.value(name, given):
                return name
        if simulated:
            return None
        if str(given.get("DO_NOT_TRACK", "")).strip() not in ("", "0"):
            return "DO_NOT_TRACK"
        if self.in_ci or str(given.get("CI", "")).strip().lower() in ("false", "0"):
            return None
        return next((name for name in CI if str(given.get(name, "")).strip()), None)

    def pinned(self, plan: CompiledPlan, ceilings: GivenCeilings | None) -> Ceilings:
        """Return what a new store is pinned to, with the app's own ceilings if there are any."""
        own = plan.ceilings if ceilings is None else checked_ceilings(ceilings)
        return self.lowered(lowered(own, plan.ceilings))

    def lowered(self, ceilings: Ceilings) -> Ceilings:
        """Return a plan's ceilings, lowered to what is set."""
        lifetime, period = ceilings.lifetime, ceilings.period
        if self.ceiling_lifetime is not None:
            lifetime = min(lifetime, micro_of("ceiling_lifetime", self.ceiling_lifetime))
        if self.ceiling_period is not None:
            period = min(period, micro_of("ceiling_period", self.ceiling_period))
        return Ceilings(min(period, lifetime), lifetime)


@frozen
class Opening:
    """The arguments that a client was made with; ``now`` returns ms since the epoch."""

    plan: CompiledPlan
    settings: Settings
    file: str | None
    ceilings: Ceilings
    publisher: Publisher
    now: Callable[[], int]
    source: Source
    tally: OutcomeTally


def configured(settings: Settings | None, *, simulated: bool, **arguments: Any) -> Settings:
    """Return settings, or those of the environment if there are none, with a client's arguments."""
    given = {name: value for name, value in arguments.items() if value is not None}
    if not isinstance(settings, Settings | None):
        raise wrong_type("settings", "a Settings, such as Settings(background=False)", settings)
    if settings is None:
        settings = _read(Settings(**given), None, given, privacy=False)
    elif given:
        settings = replace(settings, **given)
    _warn_of_misspelt()
    return settings.stricter_with_environment(simulated=simulated)


def _warn_of_misspelt() -> None:
    """Warn, once each, of variables that nothing reads and that look like one of the SDK's."""
    known = [*VARIABLES, ON_ERROR, *PLACES, CONSENT]
    for name in os.environ:
        # A name in small letters may be meant for one that is read.
        meant = name.upper()
        if meant.startswith("SOTTO_") and name not in (*known, *OTHERS):
            near = _GONE.get(meant) or did_you_mean(meant, known)
            if re.search(_WISH, meant):
                near = "; SOTTO_DISABLED=1 switches the SDK off"
            if near:
                warning = f"the variable {name} is not read{near}"
                diagnostics.warn(f"settings {name}", warning, quiet=math.inf)


@frozen
class Variable:
    """A variable of the environment."""

    field: str  #: What it sets, or after a dot what of that.
    read: Callable[[str], object]  #: Raises ValueError if a text cannot be understood.
    allowed: str  #: What it may hold, in words.
    #: Whether a bad one is an error, and a stricter one holds whatever an app passes.
    privacy: bool = False

    def value(self, name: str, given: Mapping[str, str]) -> object:
        """Return what a variable says; ParameterError if that cannot be understood."""
        try:
            if isinstance(given[name], str):
                return self.read(given[name].strip())
        except ValueError:
            pass
        raise ParameterError(f"{name} must be {self.allowed}") from None


def lowered(first: Ceilings, second: Ceilings) -> Ceilings:
    """Return the lower ceilings of two, each amount for itself."""
    return Ceilings(min(first.period, second.period), min(first.lifetime, second.lifetime))


def _lower(one: float | None, other: float | None) -> float | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _given(environ: Mapping[str, str] | None) -> Mapping[str, str]:
    given = os.environ if environ is None else environ
    if not isinstance(given, Mapping):
        raise wrong_type("environ", "a mapping of names to texts", given)
    return given


def _read(
    settings: Settings,
    environ: Mapping[str, str] | None,
    arguments: Mapping[str, object],
    *,
    privacy: bool,
) -> Settings:
    """Return settings with what variables other than switches say where there is no argument."""
    given = _given(environ)
    for name, variable in VARIABLES.items():
        if variable.privacy is not privacy or name not in given:
            continue
        field, _, part = variable.field.partition(".")
        if field == "disabled" or field in arguments:
            continue
        try:
            value: Any = variable.value(name, given)
            if part:
                value = replace(getattr(settings, field), **{part: value})
            settings = replace(settings, **{field: value})
        except ValueError:
            if privacy:
                raise ParameterError(f"{name} must be {variable.allowed}") from None
            warning = f"{name} is not used: it must be {variable.allowed}"
            diagnostics.warn(f"settings {name}", warning, quiet=math.inf)
    return settings


def _switch(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise ValueError
    return _SWITCH[text.lower()]


def _epsilon(text: str) -> float:
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text, re.ASCII):
        raise ValueError
    return float(text)


def _age(text: str) -> float:
    from sotto.plan.durations import parse_duration

    return parse_duration(text) / 1000


#: No setting, since an app decides it where it opens a client: ``raise`` alone counts.
ON_ERROR = "SOTTO_ON_ERROR"
#: Arguments of the client where no code of the app makes one (:mod:`clientsdk.otel`), and whether
#: the operator of this installation agrees: ``given`` alone counts.
PLACES = ("SOTTO_PLAN", "SOTTO_STATE_FILE", "SOTTO_PUBLISHER")
CONSENT = "SOTTO_CONSENT"
#: Variables of the cluster, the containers and examples: no app's, and not misspelt.
OTHERS = (
    *("SOTTO_CACHE", "SOTTO_COLLECTOR", "SOTTO_GATEWAY", "SOTTO_GATEWAY_PORT", "SOTTO_KAFKA_LOG"),
    *("SOTTO_PLANS", "SOTTO_READER_PASSWORD", "SOTTO_RELAY", "SOTTO_SITE", "SOTTO_START_SECONDS"),
    *("SOTTO_STATE", "SOTTO_TOKEN"),
)
#: The remedy for a variable that an earlier release read.
_GONE = {"SOTTO_FLUSH_TIMEOUT": "; pass a timeout to flush()"}
#: A name by which somebody may want to switch the SDK off, or on.
_WISH = r"_(DNT|OFF|NOT?|NO_?(TELEMETRY|TRACK\w*)|OPT_?OUT|(DIS|EN)ABL\w*)(_|$)"
_EPSILON = "an epsilon in [0.001, 100000], at most 6 decimals, a period's at most the lifetime's"
_A_SWITCH = "1, true, yes or on; or 0, false, no or off"
#: By name; ``docs/guides/sdk.md`` has the same table.
VARIABLES: Mapping[str, Variable] = {
    "SOTTO_DISABLED": Variable("disabled", _switch, _A_SWITCH, True),
    "SOTTO_DISABLE": Variable("disabled", _switch, _A_SWITCH, True),
    "SOTTO_TELEMETRY": Variable("disabled", lambda text: not _switch(text), _A_SWITCH, True),
    "SOTTO_CEILING_PERIOD": Variable("ceiling_period", _epsilon, _EPSILON, True),
    "SOTTO_CEILING_LIFETIME": Variable("ceiling_lifetime", _epsilon, _EPSILON, True),
    "SOTTO_BACKGROUND": Variable("background", _switch, _A_SWITCH),
    "SOTTO_QUOTA_BYTES": Variable("quota.bytes", int, "a whole number, at least 131072"),
    "SOTTO_QUOTA_AGE": Variable("quota.age", _age, "a duration above 0, at most 731d, such as 30d"),
    "SOTTO_CLOSE_TIMEOUT": Variable("close_timeout", float, "a number of seconds in [0, 600]"),
    "SOTTO_LOG": Variable("log", str, "debug, info, warning, error or off"),
}


# Checks of the arguments that an app passes to a client: ParameterError or PlanError says what is
# wrong.


def read_plan(
    given: CompiledPlan | bytes | str | os.PathLike[str],
    expect: str | None,
    *,
    honoured: bool = True,
) -> CompiledPlan:
    """Return a plan given as an object, canonical JSON or a file, if it is the one expected.

    Unless it is to be ``honoured``, nothing checks that it can be, and no mechanism is loaded.
    """
    if not isinstance(given, CompiledPlan | bytes | str | os.PathLike):
        expected = "a CompiledPlan, the bytes of its JSON, or the path of that"
        raise PlanError(str(wrong_type("plan", expected, given)))
    if isinstance(given, str) and (given.lstrip()[:1] == "{" or "\n" in given or "\0" in given):
        raise PlanError("plan is a text, and no path: pass what sotto plan compile makes, as bytes")
    if isinstance(given, str) and "://" in given:
        raise PlanError("plan must be a file, not a URL: fetch_plan fetches one")
    if not isinstance(given, CompiledPlan | bytes):
        try:
            with open(given, "rb") as file:
                given = file.read()
        except OSError as error:
            what = error.strerror or type(error).__name__
            # Its name alone: folders have the name of a person.
            name = os.path.basename(os.fspath(given))
            raise PlanError(
                f"the compiled plan {name!r} cannot be read: {what}; pass the whole path of the "
                ".json file that sotto plan compile writes, or the bytes of one in an archive"
            ) from error
    read = CompiledPlan.from_json if honoured else read_without_mechanisms
    # A child of a fork in the middle of an import would wait for its end for ever.
    with NoFork():
        plan = given if isinstance(given, CompiledPlan) else read(given)
    if expect is None:
        return plan
    if not (isinstance(expect, str) and re.fullmatch(r"[0-9a-fA-F]{64}", expect)):
        raise ParameterError(
            "expect must be a plan's fingerprint, 64 hexadecimal digits, as sotto plan fingerprint "
            "prints it"
        )
    if expect.lower() not in (plan.fingerprint_hex, plan.digest.hex()):
        raise PlanError(
            f"plan {plan.plan!r} version {plan.version} has the fingerprint "
            f"{plan.fingerprint_hex}, and this app expects {expect.lower()}: it is not the plan "
            "that the app was made for"
        )
    return plan


def checked_path(state: str | os.PathLike[str] | Forgetful) -> str | None:
    """Return where a device's file is to be, None if the app has named that it wants none."""
    if state is NO_LIFETIME_BOUND:
        return None
    path = os.fspath(state) if isinstance(state, str | os.PathLike) else ""
    no_file = ("", ":memory:", NO_LIFETIME_BOUND.name, NO_LIFETIME_BOUND.value)
    if not isinstance(path, str) or "\0" in path or path.startswith("file:") or path in no_file:
        what = type_of(state) if not isinstance(state, str) else "a str that is none"
        raise ParameterError(
            f"state must be the path of a file; got {what}. The constant NO_LIFETIME_BOUND keeps "
            "everything in memory, and then nothing bounds what a device gives in more than one "
            "process"
        )
    if path.startswith("~"):
        raise ParameterError("state must not begin with ~: pass os.path.expanduser(...) of it")
    try:
        return os.path.abspath(path)
    except OSError:
        raise ParameterError("state must be a whole path: the working directory is gone") from None


def checked_publisher(publisher: Publisher | str) -> Publisher:
    """Return the publisher, or the one that a URL stands for."""
    if isinstance(publisher, str):
        from clientsdk.publishers import publisher_of

        return publisher_of(publisher)
    if isinstance(publisher, type) or not callable(getattr(publisher, "publish", None)):
        expected = "a collector's url, or an object with a method publish(shard, message)"
        if isinstance(publisher, type):
            raise ParameterError(
                f"publisher must be {expected}; got the class {publisher.__name__}: make one of it"
            )
        if isinstance(publisher, os.PathLike):
            expected += '; a log\'s folder is "file:" before its path'
        raise wrong_type("publisher", expected, publisher)
    return publisher


def checked_segments(plan: CompiledPlan, given: object) -> dict[str, str | None]:
    """Return what an app says its device is; warn where only capitals keep a value from counting.

    Segments are public, and a value that the plan does not list is fine.
    """
    with NoFork():
        from sotto.plan.segments import given_segments

    said = given_segments(plan.segments, given)
    for name, values in plan.segments:
        value = said.get(name)
        if value is not None and value not in values:
            for near in (each for each in values if each.lower() == value.lower()):
                text = f"segment {name!r} counts as other: the plan lists {near!r}, so written"
                diagnostics.warn(f"segment {name}", text, quiet=math.inf)
    return said


def checked_clock(clock: Callable[[], float]) -> Callable[[], int]:
    """Return an app's clock, in milliseconds."""
    expected = "a function that returns seconds since the epoch, such as time.time"
    if clock is time.time:
        return now_ms
    if not callable(clock):
        raise wrong_type("clock", expected, clock)
    if clock in (time.monotonic, time.perf_counter, time.process_time, time.thread_time):
        name = getattr(clock, "__name__", "")
        raise ParameterError(f"clock must be {expected}; got time.{name}, which starts anywhere")
    reading = clock()
    if not is_number(reading):
        raise wrong_type("clock", f"{expected}; it returns another type", reading)
    if not abs(reading) < math.inf:
        raise ParameterError(f"clock must be {expected}; it returns {reading}")
    for unit, scale in _FINER.items():
        if 1.5e9 * scale <= reading < 4e9 * scale:
            raise ParameterError(f"clock must be {expected}; it seems to return {unit}: divide it")
    return lambda: round(clock() * 1000)


def micro_of(name: str, epsilon: object) -> int:
    """Return an epsilon that an app gives in whole millionths, rounded down."""
    amount = unboxed(epsilon)
    if not is_number(amount):
        raise wrong_type(name, "an epsilon, such as 1.5", epsilon)
    if not LEAST_CEILING <= amount * 10**_DECIMALS <= MOST_CEILING:
        hint = ": is it in millionths?" if amount > 1 else ""
        got = f"{amount:,.12g}{hint}"
        raise ParameterError(f"{name} must be an epsilon in [0.001, 100000]; got {got}")
    from fractions import Fraction

    return int(Fraction(repr(float(amount))) * 10**_DECIMALS)


def checked_ceilings(given: GivenCeilings) -> Ceilings:
    """Return ceilings that an app gives: two epsilons, or those of a plan or a ledger."""
    if isinstance(given, Ceilings):
        return given
    if not (isinstance(given, tuple | list) and len(given) == 2):
        raise wrong_type("ceilings", "two epsilons, a period's and a lifetime's: (3, 60)", given)
    period, lifetime = (micro_of("ceilings: each", amount) for amount in given)
    if period > lifetime:
        raise ParameterError(
            "ceilings must be (period, lifetime); got a period's above the lifetime's: swap them"
        )
    return Ceilings(period, lifetime)
