"""Plan files: what they become, and that none that lies is loaded."""

from pathlib import Path

import pytest
import yaml
from agreed_plans import DAY, HOUR, PLAN_YAML
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.registry import mechanisms_for
from sotto.errors import ParameterError, PlanError
from sotto.plan.checks import MAX_OPEN_COUNTS
from sotto.plan.choice import Asked, choose, choose_category, choose_number, spec_of
from sotto.plan.compile import load_plan, parse_plan
from sotto.plan.compiled import CompiledPlan
from sotto.plan.durations import duration_text, parse_duration


def test_a_plan_becomes_what_it_says():
    plan = parse_plan(PLAN_YAML).compile()
    assert (plan.collector, plan.plan, plan.version) == ("fleet.example", "departures", 3)
    # 2027-07-01: valid through the end of the day that was named.
    assert plan.expires == 1_814_400_000_000
    assert not plan.expired(plan.expires - 1)
    assert plan.expired(plan.expires)
    assert (plan.period, plan.resolution, plan.grace) == (7 * DAY, HOUR, DAY)
    assert (plan.retention, plan.shards) == (30 * DAY, 64)
    assert (plan.ceilings.period, plan.ceilings.lifetime) == (12_000_000, 640_000_000)
    carrier, dest, delay, distance = plan.metrics
    assert carrier.labels == ("AA", "B6", "DL", "EV", "UA", "other")
    assert carrier.spec == {"name": "grr", "domain_size": 6}
    assert carrier.delays == (0, DAY, 7 * DAY)
    assert dest.spec == {"name": "rappor", "bits": 128, "hashes": 2, "cohorts": 16}
    assert (dest.kind, dest.limit) == ("first", 1)
    assert delay.spec == {"name": "threshold", "missing": True}
    assert (delay.kind, delay.range, delay.unit) == ("reservoir", (-30.0, 180.0), "min")
    assert distance.spec == {"name": "sampled_bit", "bits": 10, "missing": False}
    assert (distance.kind, distance.limit) == ("every", 2)
    assert plan.cost == sum(metric.cost for metric in plan.metrics) == 9_500_000


@pytest.mark.parametrize(("line", "least"), [("", 20), ("minimum_reports: 1\n", 1)])
def test_a_plan_asks_for_twenty_reports_unless_it_says_how_many(line, least):
    plan = parse_plan(line + PLAN_YAML).compile()
    assert plan.minimum_reports == least
    again = CompiledPlan.from_json(plan.to_json())
    assert again.minimum_reports == least
    assert again == plan


def test_only_choices_that_were_left_open_are_explained():
    chosen = parse_plan(PLAN_YAML).chosen
    assert sorted(chosen) == ["carrier", "dep_delay", "dest"]
    assert "least variance" in chosen["carrier"]


LIES = yaml.safe_load((Path(__file__).parent / "lies.yaml").read_text("utf-8"))


@pytest.mark.parametrize("lie", LIES, ids=range(len(LIES)))
def test_a_plan_that_lies_is_refused_and_the_error_says_why(lie):
    assert lie["replace"] in PLAN_YAML
    text = PLAN_YAML.replace(lie["replace"] or PLAN_YAML, lie["by"], 1)
    assert refusal(text).count(lie["says"]) >= 1


def test_all_problems_are_said_at_once_but_not_without_end():
    wrong = PLAN_YAML.replace("{every: 2}", "{every: 0}").replace("window: 364d", "window: 90m")
    assert len(refusal(wrong).splitlines()) == 2
    many = PLAN_YAML + "".join(f"  m{number}: {{}}\n" for number in range(100))
    *said, last = refusal(many).splitlines()
    assert (len(said), last) == (20, "and 80 more")


def refusal(text):
    with pytest.raises(PlanError) as caught:
        parse_plan(text)
    assert len(str(caught.value)) < 2500
    return str(caught.value)


def test_more_plans_that_lie():
    missing = PLAN_YAML.replace("    outside: other", "    outside: other\n    missing: true")
    assert "'missing' where missing is true" in refusal(missing.replace("[AA,", "[missing,"))
    assert "at least one metric" in refusal(PLAN_YAML[: PLAN_YAML.index("  carrier")] + "  {}")
    assert "cannot be read as YAML" in refusal("[" * 500)
    surrogate = PLAN_YAML.replace("owner: telemetry@fleet.example", 'owner: "\\uD800"')
    assert "UTF-8 cannot have" in refusal(surrogate)
    assert "NUL character" in refusal(PLAN_YAML.replace("[AA,", '["A\\0",'))


@pytest.mark.parametrize("points", [-5, 0, 1, 131_073, 10**9])
def test_points_of_an_ordinal_are_called_points(points):
    text = f"type: ordinal, range: [0, 1], points: {points}, window: 28d, ladder: [{{epsilon: 1}}]"
    head = PLAN_YAML[: PLAN_YAML.index("  carrier")]
    assert f"metric 'm': points {points} must be at least 2" in refusal(f"{head}  m: {{{text}}}")


def test_missing_beside_a_value_called_missing_is_fine_without_missing_values():
    plan = parse_plan(PLAN_YAML.replace("[AA, B6,", "[AA, missing,")).compile()
    assert plan.metric("carrier").encode("missing") == 1


def test_merge_keys_are_no_repetition():
    text = PLAN_YAML.replace("  dest: {", "  dest: &dest {") + "  home: {<<: *dest, window: 28d}\n"
    plan = parse_plan(text.replace("period: 12", "period: 20"))
    assert plan.compile().metric("home").window == 28 * DAY


@pytest.mark.parametrize(
    ("written", "micro"),
    [
        ("0.1", 100_000),
        ("0.3", 300_000),
        ("1", 10**6),
        ("0.000001", 1),
        ("1.5e+0", 1_500_000),
        ("'0.7'", 700_000),
    ],
)
def test_amounts_are_exactly_what_is_written(written, micro):
    text = PLAN_YAML.replace("{epsilon: 1.5, after: 14d}", f"{{epsilon: {written}, after: 14d}}")
    text = text.replace("{epsilon: 0.5, after: 7d}, ", "").replace("after: 14d", "after: 7d")
    assert parse_plan(text).compile().metric("dep_delay").ladder[0].epsilon == micro


def test_a_plan_that_asks_for_quantiles_gets_thresholds():
    def chosen(metric):
        head = PLAN_YAML[: PLAN_YAML.index("  carrier")]
        text = f"range: [0, 1], outside: clip, window: 28d, {metric}"
        return parse_plan(f"{head}  m: {{{text}}}").compile().metric("m").mechanism.name

    ladder = "ladder: [{epsilon: 4}]"
    assert chosen(f"type: number, {ladder}") == "hybrid"
    assert chosen(f"type: number, quantiles: true, {ladder}") == "threshold"
    vector = f"type: vector, dimensions: 4, {ladder}"
    assert chosen(vector) == "sampled_hybrid"
    assert chosen(f"{vector}, quantiles: true") == "sampled_vector"
    with pytest.raises(PlanError, match="leave out"):
        chosen(f"type: number, quantiles: true, mechanism: hybrid, {ladder}")
    with pytest.raises(PlanError, match="constant"):
        chosen(f"type: number, quantiles: true, repeat: {{constant: true}}, {ladder}")


def test_a_false_discovery_rate_is_of_strings_and_not_of_the_wire():
    def with_rate(rate):
        said = f"type: string, false_discovery_rate: {rate},"
        return parse_plan(PLAN_YAML.replace("type: string,", said)).compile()

    strict, plan = parse_plan(PLAN_YAML).compile(), with_rate(0.1)
    assert plan.metric("dest").false_discovery_rate == 0.1
    assert CompiledPlan.from_json(plan.to_json()) == plan
    assert plan.fingerprint == strict.fingerprint
    assert plan.metric("dest").counted == strict.metric("dest").counted
    with pytest.raises(
        PlanError, match=r"false_discovery_rate 0\.9 must be above 0 and at most 0\.5"
    ):
        with_rate(0.9)


def test_candidates_lie_beside_the_plan_and_not_in_it(tmp_path):
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "airports.txt").write_text("# airports\nJFK\n\n  LGA \nÅÅ\n", "utf-8")
    path = tmp_path / "plan.yaml"
    path.write_text(
        PLAN_YAML.replace("type: string,", "type: string, candidates: lists/airports.txt,")
    )
    plan = load_plan(path)
    assert plan.candidates == {"dest": ("JFK", "LGA", "ÅÅ")}
    assert plan.compile() == parse_plan(PLAN_YAML).compile()
    for content, said in (
        (b"JFK\nJFK\n", "repeated"),
        (b"# none\n", "no candidates"),
        (b"\xff", "UTF-8"),
    ):
        (tmp_path / "lists" / "airports.txt").write_bytes(content)
        with pytest.raises(PlanError, match=said):
            load_plan(path)


def test_a_plan_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "plan.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(PlanError, match="UTF-8"):
        load_plan(tmp_path / "plan.yaml")
    with pytest.raises(FileNotFoundError):
        load_plan(tmp_path / "none.yaml")


def category(size, *ladder, constant=False):
    return Asked("category", {"domain_size": size}, ladder, "x", constant)


class TestChooser:
    def test_small_domains_are_answered_directly_and_large_ones_in_sets_or_hashed(self):
        sizes = (2, 3, 8, 30, 1000, 5000, 100_000)
        names = [choose_category(category(m, 1_000_000)).spec["name"] for m in sizes]
        assert names[:4] == ["grr", "grr", "subset", "subset"]
        assert names[4:] == ["local_hashing"] * 3

    def test_of_those_that_vary_alike_the_smallest_payload_is_chosen_and_that_is_said(self):
        chosen = choose_category(category(200, 500_000, 2_000_000))
        assert chosen.spec["name"] == "local_hashing"
        assert "smallest payload of those whose variance" in chosen.why
        assert "within 5 % of the least" in chosen.why
        # One byte and not two, for 0.2 % more.
        assert choose_category(category(12, 2_000_000)).spec["name"] == "grr"
        # The larger payload is chosen if more than that is at stake.
        larger = choose_category(category(16, 2_000_000))
        assert larger.spec["name"] == "subset"
        assert larger.why.startswith("least variance at the last level (n times")

    @pytest.mark.slow
    def test_a_top_item_is_estimated_without_bias_unless_the_plan_says_otherwise(self):
        asked = Asked("top_item", {"domain_size": 3, "clip": 9}, (1_000_000,), "screen")
        assert choose(asked).spec == {"name": "top_response", "domain_size": 3, "clip": 9}

    def test_what_has_more_counts_than_fit_is_not_chosen(self, monkeypatch):
        asked = category(100_000, 4_000_000)
        assert choose_category(asked).spec["name"] == "local_hashing"
        assert choose_category(asked._replace(counts=1 << 20)).spec["name"] == "hadamard"
        values = ", ".join(f"v{number}" for number in range(400))
        text = PLAN_YAML.replace("AA, B6, DL, EV, UA", values)
        for most, chosen in ((MAX_OPEN_COUNTS, "local_hashing"), (1 << 15, "subset")):
            monkeypatch.setattr("sotto.plan.compile.MAX_OPEN_COUNTS", most)
            assert parse_plan(text).compile().metric("carrier").mechanism.name == chosen

    @given(st.integers(2, 60), st.integers(1, 60))
    @settings(max_examples=40, deadline=None)
    def test_no_candidate_is_better_than_the_chosen_one(self, size, tenths):
        from mechanisms.registry import build

        ladder = [tenths * 100_000]
        chosen = choose_category(category(size, *ladder)).spec["name"]
        least = {}
        for name in mechanisms_for("category"):
            asked = category(size, *ladder)
            mechanism = build(spec_of(name, asked), ladder, "x")
            least[name] = mechanism.noise(0).total(size)
        assert least[chosen] <= min(least.values()) * 1.05

    def test_of_a_constant_metric_the_last_level_that_is_sent_counts(self):
        assert choose_category(category(20, 1_000_000, 8_000_000)).spec["name"] == "grr"
        constant = category(20, 1_000_000, 8_000_000, constant=True)
        assert choose_category(constant).spec["name"] == "subset"

    def test_numbers_above_the_limit_are_hidden_on_a_grid(self):
        def number(missing, *ladder, constant=False):
            return choose_number(Asked("number", {"missing": missing}, ladder, "x", constant))

        assert "up to epsilon 1.9" in number(False, 1_900_000).why
        beyond = number(True, 500_000, 1_900_001)
        assert "above epsilon 1.9" in beyond.why
        assert beyond.spec == {"name": "hybrid", "points": 65, "missing": True}
        assert "without a public coin" in number(False, 500_000, 1_000_000, constant=True).why


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ("28d", 28 * DAY),
        ("1h", HOUR),
        ("30m", 1_800_000),
        ("15s", 15_000),
        ("500ms", 500),
        (7, 7),
        ("0d", 0),
    ],
)
def test_durations(written, milliseconds):
    assert parse_duration(written) == milliseconds
    assert parse_duration(duration_text(milliseconds)) == milliseconds


@pytest.mark.parametrize(
    "written",
    ["", "1", "1 d", "-1d", "1.5h", "1w", "d", "1D", "१d", "1d\n", -1, True, 1.0, None, [1]],
)
def test_what_is_no_duration(written):
    with pytest.raises(ParameterError, match="duration"):
        parse_duration(written)


def panels(written, of_dest=""):
    text = PLAN_YAML.replace("period: 7d\n", f"period: 7d\n{written}\n")
    text = text.replace("{type: string,", "{type: string," + of_dest)
    return [metric.panel for metric in parse_plan(text).compile().metrics]


def test_a_panel_is_the_plans_unless_a_metric_has_its_own():
    assert panels("") == panels("panel: 1") == panels("panel: 1/1") == [1, 1, 1, 1]
    assert panels("panel: 1/13") == [13, 13, 13, 13]
    assert panels("panel: 1/13", " panel: 1,") == [13, 1, 13, 13]
    assert panels("", " panel: 1/1000,") == [1, 1000, 1, 1]


@pytest.mark.parametrize(
    "written", ["2/13", "1/0", "1/1001", "0", "13", "0.5", "true", "[1]", "''"]
)
def test_a_panel_that_is_no_share_is_refused_by_name(written):
    with pytest.raises(PlanError, match=r"^panel .* must be 1/N with a whole number N in \[1, 10"):
        panels(f"panel: {written}")
    with pytest.raises(PlanError, match=r"^metric 'dest': panel .* such as 1/13, or 1 for every"):
        panels("", f" panel: {written},")
