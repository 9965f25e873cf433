"""The output of ``sotto plan check`` for every type of metric, and the noise behind it."""

import math
import sqlite3
from contextlib import closing
from itertools import product

import numpy as np
import pytest
from plan_texts import plan_head

import sotto_cli
from mechanisms.noise import Noise
from mechanisms.registry import build
from mechanisms.string.decoding import bloom_filters
from sotto.design.description import share_floor, what_reports_show
from sotto.errors import ParameterError
from sotto.plan.compile import parse_plan
from sotto.plan.files import open_beside, write_output

PLAN = (
    plan_head("types", (40, 640), expires="2027-06-30")
    + """\
  grade:
    {type: ordinal, values: [a, b, c, d], window: 28d,
     ladder: &ladder [{epsilon: 0.5}, {epsilon: 2, after: 7d}]}
  asked: {type: survey, question: "Did you?", window: 28d, ladder: *ladder}
  cards:
    {type: survey, question: "And?", mechanism: {christofides: {cards: [3, 1, 9]}}, window: 28d,
     ladder: *ladder}
  place:
    {type: vector, range: [0, 1], dimensions: 8, outside: clip, mechanism: {sampled: 2, bits: 4},
     window: 28d, ladder: *ladder}
  speed:
    {type: number, range: [0, 1], outside: clip, mechanism: duchi, window: 28d, ladder: *ladder}
  named:
    {type: top_item, domain: [x, y, z], outside: x, clip: 9, mechanism: permute_and_flip,
     window: 28d, ladder: *ladder}
  model:
    {type: boolean, window: 28d, repeat: {constant: true},
     ladder: [{epsilon: 0.5}, {epsilon: 1, after: 1d}, {epsilon: 4}]}
"""
)


@pytest.fixture(scope="module")
def metrics():
    return {metric.name: metric for metric in parse_plan(PLAN).compile().metrics}


def test_check_says_what_metrics_of_every_type_cost_and_tell(capsys, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    assert sotto_cli.main(["plan", "check", str(path)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "grade ordinal brr (4 symbols, 1 favoured) 1 B 28d" in lines
    assert "cards survey christofides (cards 3 1 9) 1 B 28d" in lines
    assert "2 1d 1.0 1.0 1.58x" in lines
    assert "3 never 4.0 4.0 1.02x" in lines
    assert "model 1.0 1 1.0 4.0" in lines
    assert (
        "ceiling of a lifetime: 640.0, of which permanent responses take 4.0 once (model 4.0), "
        "reached after 57 periods (399d)"
    ) in lines
    assert "speed: mean" in lines
    assert "place: mean of each of 8 coordinates, 2 of them a report" in lines


def test_a_plan_of_constant_metrics_alone_never_reaches_its_lifetime(capsys, tmp_path):
    path = tmp_path / "plan.yaml"
    head, _, last = PLAN.partition("  grade")
    path.write_text(head + last[last.index("  model") :])
    assert sotto_cli.main(["plan", "check", str(path)]) == 0
    assert "take 4.0 once (model 4.0), never reached" in capsys.readouterr().out


def test_what_is_told(metrics):
    assert what_reports_show(metrics["asked"]).startswith(
        "share of yes to 'Did you?'; 10,000 reports distinguish a "
    )
    assert "the most likely ones" in what_reports_show(metrics["grade"])
    assert what_reports_show(metrics["model"]).endswith("whose permanent response is never sent")
    assert "at most 9 of each are counted" in what_reports_show(metrics["named"])


def test_lies_and_floors_are_exact(metrics):
    p, q = 1 / (1 + math.exp(-2)), 1 / (1 + math.exp(2))
    lie = (1 - q) / (p - q)
    assert max(metrics["asked"].mechanism.reach(1)) == pytest.approx(lie)
    assert max(metrics["speed"].mechanism.reach(1)) == pytest.approx(lie)
    for spec in ({"name": "threshold"}, {"name": "split_bits", "bits": 1}):
        alone = build({**spec, "missing": False}, [2_000_000], "x")
        assert max(alone.reach(0)) == pytest.approx(lie)
    # A coordinate is in a quarter of the reports, each with half of the epsilon.
    half = 1 / (1 + math.exp(-1))
    assert max(metrics["place"].mechanism.reach(1)) == pytest.approx(4 * half / (2 * half - 1))
    assert max(metrics["named"].mechanism.reach(1)) == 1.0
    assert metrics["grade"].mechanism.reach(1) is None
    # Cards 1 to 3: a yes says 4 − k. Mean card 32/13; a no says it, a yes 20/13.
    assert max(metrics["cards"].mechanism.reach(1)) == pytest.approx((3 - 20 / 13) / (12 / 13))
    assert share_floor(metrics["speed"], 100) is None
    assert share_floor(metrics["named"], 100) is None
    alone = share_floor(metrics["model"], 10_000)
    assert share_floor(metrics["model"], 40_000) == pytest.approx(alone / 2, rel=0.01)


def test_no_bound_is_stated_for_strings_since_lies_count_more_than_a_bit_does():
    """Liars of one cohort who set the bits of a string, and no other, move it by 1/(p - q)."""
    text = "type: string, cohorts: 1, window: 28d, ladder: *ladder"
    plan = parse_plan(PLAN[: PLAN.index("  asked")] + f"  found: {{{text}}}\n").compile()
    assert plan.metric("found").mechanism.reach(1) is None
    rappor = build({"name": "rappor", "bits": 128, "hashes": 2, "cohorts": 1}, [2_000_000], "x")
    names = tuple(f"string {number}" for number in range(40))
    [(p, q), *_], n, forged = rappor.probabilities(0), 1_000_000, 10_000
    filters = bloom_filters(names, 128, 2, 1)
    honest = np.rint(n * (q + (p - q) * (filters @ np.full(40, 1 / 40)).reshape(1, -1)))
    claimed = forged * (filters @ np.eye(40)[0]).reshape(1, -1)
    values = []
    for counts in ([[n]], honest), ([[n + forged]], honest + claimed):
        table = np.hstack((counts[1], counts[0])).astype(np.int64)
        values.append(rappor.decode(table, names).items[0].estimate.value)
    assert (values[1] - values[0]) / (forged / (n + forged)) > 1.4 * max(Noise.of(p, q)[-2:])


def test_of_permute_and_flip_it_is_said_how_often_it_names_what_leads_by_everything(metrics):
    [stay] = [each for each in what_reports_show(metrics["named"]).split() if each.endswith("%")]
    mechanism = metrics["named"].mechanism
    laws = (mechanism.selection(counts) for counts in product((0, 4, 9), repeat=3))
    assert stay == f"{float(max(max(law) for law in laws)):.0%}" == "73%"


def test_another_plan_under_the_same_version_is_told(tmp_path, capsys):
    """Devices would record under one, and the aggregator know the other."""
    path = tmp_path / "plan.yaml"
    said = []
    for text in (PLAN, PLAN, *(PLAN.replace("z]", new) for new in ("w]", "v]"))):
        path.write_text(text, "utf-8")
        assert sotto_cli.main(["plan", "compile", str(path)]) == 0
        said.append("had another plan under version" in capsys.readouterr().err)
    assert said == [False, False, True, True]


def test_an_output_keeps_the_permissions_of_what_it_replaces(tmp_path):
    other, output, loop = (tmp_path / name for name in ("other", "output", "loop"))
    other.touch()
    write_output(output, b"")
    assert output.stat().st_mode == other.stat().st_mode
    output.chmod(0o640)
    write_output(output, b"")
    assert output.stat().st_mode & 0o777 == 0o640
    loop.symlink_to(loop)
    with pytest.raises(ParameterError, match="link to itself"):
        write_output(loop, b"")


def test_no_output_replaces_a_database(tmp_path, capsys):
    ledger = tmp_path / "device.db"
    (tmp_path / "plan.yaml").write_text(PLAN, "utf-8")
    with closing(sqlite3.connect(ledger)) as database:
        database.execute("CREATE TABLE spent (micro INTEGER)")
    before = ledger.read_bytes()
    command = ["plan", "compile", str(tmp_path / "plan.yaml"), "-o", str(ledger)]
    assert sotto_cli.main(command) == 2
    assert "is a database: name another file" in capsys.readouterr().err
    assert ledger.read_bytes() == before


def test_what_replaces_a_private_file_is_private_from_the_start(tmp_path):
    output, beside, other = (tmp_path / name for name in ("output", "beside", "other"))
    output.touch(0o600)
    beside.symlink_to(other)
    open_beside(beside, output).close()
    assert (beside.stat().st_mode & 0o777, other.exists()) == (0o600, False)
