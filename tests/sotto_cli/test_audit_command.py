"""``sotto audit``: what it prints of the library and of plans, and when it says no."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agreed_plans import PLAN_YAML

from mechanisms import randomness
from mechanisms.audit import claims
from mechanisms.audit.guessing import Attack
from mechanisms.chains.symbols import SymbolDraw
from mechanisms.testing import SeededSource
from sotto import audit
from sotto.plan.compile import parse_plan
from sotto_cli import main

pytestmark = pytest.mark.slow

CONSTANT = """\
  model:
    type: category
    domain: [a, b]
    outside: other
    window: 28d
    repeat: {constant: true}
    ladder: [{epsilon: 0.5}, {epsilon: 1, after: 1d}, {epsilon: 2.5}]
"""


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN_YAML + CONSTANT)
    return path


def run(capsys: Any, *arguments: object) -> tuple[int, list[str], str]:
    status = main(["audit", *map(str, arguments)])
    printed = capsys.readouterr()
    return status, [" ".join(line.split()) for line in printed.out.splitlines()], printed.err


def document_of(capsys: Any, *arguments: object) -> Any:
    main(["audit", *map(str, arguments), "--format=json"])
    return json.loads(capsys.readouterr().out)


def test_a_plan_says_what_everything_costs(capsys, plan_file):
    status, lines, err = run(capsys, plan_file)
    assert (status, err) == (0, "")
    compiled = parse_plan(plan_file.read_text()).compile()
    said = f"fingerprint {compiled.fingerprint.hex()}"
    assert lines[:2] == ["plan departures, version 3, of collector fleet.example", said]
    assert "metric mechanism level claimed certified verdict" in lines
    assert "carrier grr 1 0.500000 0.500000 holds" in lines
    assert "model grr 1 0.500000 0.500000 holds" in lines
    assert "3, never sent 2.500000 2.500000 holds" in lines
    # The lifetime of 640 pays 2.5 once and 67 periods of 9.5.
    assert "carrier 2.0 1 2.0 134.0" in lines
    assert "distance 2.0 2 4.0 268.0" in lines
    assert "model 1.0 1 1.0 2.5" in lines
    assert "all 6 10.5 639.0" in lines
    text = " ".join(lines)
    assert "ceiling of a period (7d): 12.0, of which 10.5 can be spent" in text
    assert "permanent responses take 2.5 once (model 2.5), reached after 67 periods (469d)" in text


def test_a_compiled_plan_says_the_same(capsys, plan_file):
    _, lines, _ = run(capsys, plan_file)
    compiled = plan_file.with_suffix(".json")
    compiled.write_bytes(parse_plan(plan_file.read_text()).compile().to_json())
    assert run(capsys, compiled)[1] == lines


def test_a_plan_in_json(capsys, plan_file):
    document = document_of(capsys, plan_file)
    assert document["period"] == {"cost": 10.5, "ceiling": 12.0}
    lifetime = document["lifetime"]
    # 9.5 in each of 365.25 / 7 weeks.
    assert lifetime.pop("a_year") == pytest.approx(495.696, abs=0.001)
    assert lifetime == {"permanent": 2.5, "a_period": 9.5, "ceiling": 640.0, "periods": 67}
    assert (document["attack"], document["status"]) == (None, 0)
    model = document["metrics"][-1]
    assert [level["sent"] for level in model["levels"]] == [True, True, False]
    assert (model["value"], model["permanent"], model["problems"]) == (1.0, 2.5, [])


def test_a_lifetime_lasts_longer_with_panels(capsys, plan_file):
    text = plan_file.read_text()
    plan_file.write_text(text.replace("period: 7d", "period: 7d\npanel: 1/13"))
    _, lines, _ = run(capsys, plan_file)
    # 67 turns as before.
    assert "carrier 2.0 1 2.0 134.0" in lines
    assert "all 6 10.5 639.0" in lines
    assert any("reached after 871 periods (6097d)" in line for line in lines)
    plan_file.write_text(text.replace("type: string", "type: string, panel: 1/4"))
    _, lines, _ = run(capsys, plan_file)
    # (640 - 2.5) / (7.5 + 2 / 4) periods.
    assert any("reached after 79 periods" in line for line in lines)
    assert "dest 2.0 1 2.0 38.0" in lines


@pytest.fixture
def two_metrics(plan_file):
    """A plan of a category and a constant one."""
    carrier = PLAN_YAML.replace("&ladder ", "").partition("  dest:")[0]
    plan_file.write_text(carrier + CONSTANT)
    return plan_file


def test_a_plan_attacked(capsys, two_metrics):
    few = "--trials", 5000, "--recordings", 1000
    document = document_of(capsys, two_metrics, "--attack", *few)
    assert document["attack"] == {"trials": 5000, "recordings": 1000, "confidence": 0.95}
    assert document["status"] == 0
    for metric in document["metrics"]:
        attacks = [level for level in metric["levels"] if "device" in level]
        assert len(attacks) == 1
        # A level that is never sent is not attacked: the last one that is sent is.
        assert attacks[0]["certified"] == metric["value"]
        assert attacks[0]["batch"]["chains"] == 10_000
        assert 200 <= attacks[0]["device"]["chains"] <= 2_000
        assert attacks[0]["law"]["same_as_batch"]
        assert not attacks[0]["law"]["differs"]


def test_the_library_without_an_attack(capsys):
    document = document_of(capsys, "--no-attack")
    assert document["status"] == 0
    found = {line["mechanism"]: line for line in document["mechanisms"]}
    assert set(found) == {claim.name for claim in claims.LIBRARY}
    assert all(line["certified"] <= line["claimed"] for line in found.values())
    census = [line for line in document["published"] if "Christofides" in line["claim"]]
    assert census[0]["true"] == "inf"
    assert [line["verdict"].split(":")[0] for line in document["published"]].count("false") == 12
    status, lines, err = run(capsys, "--no-attack")
    assert (status, err) == (0, "")
    assert "Claims of papers, and of what breaks their conditions:" in lines


def test_some_of_the_library(capsys, monkeypatch):
    options = ["--mechanism", "grr,threshold", "--epsilon", "0.5,3", "--trials", "5000"]
    options += ["--recordings", "1000"]
    monkeypatch.setattr(randomness, "SystemSource", lambda: SeededSource(20_260_801))
    document = document_of(capsys, *options)
    lines = [(line["mechanism"], line["claimed"]) for line in document["mechanisms"]]
    assert lines == [("grr", 0.5), ("grr", 3.0), ("threshold", 0.5), ("threshold", 3.0)]
    assert document["published"] == document["others"] == []
    assert all(isinstance(line["device"]["attacked"], float) for line in document["mechanisms"])
    assert [line["law"]["followed"] for line in document["mechanisms"]] == [1.0] * 4


def test_an_attack_that_exceeds_the_certificate_is_status_1(capsys, monkeypatch, two_metrics):
    def attack(*args: object, **options: object) -> Attack:
        return Attack(999_000, 1_000_000, "the bytes", 1_250_000, 0.95)

    monkeypatch.setattr(claims, "attack", attack)
    few = ("--recordings", 1000)
    status, lines, _ = run(capsys, "--mechanism", "grr", "--epsilon", "1", *few)
    assert status == 1
    assert any(
        line.endswith("an attack on the batch code shows more than is certified") for line in lines
    )
    status, lines, _ = run(capsys, two_metrics, "--attack", *few)
    assert status == 1
    assert "metric mechanism level claimed certified device batch device's law verdict" in lines


def test_a_certificate_that_is_not_its_own_is_status_1(capsys, monkeypatch, plan_file):
    monkeypatch.setattr(claims, "certified", lambda mechanism, level: 499_999)
    status, lines, _ = run(capsys, "--mechanism", "grr", "--no-attack")
    assert status == 1
    assert any("thresholds cost another amount" in line for line in lines)
    assert run(capsys, plan_file)[0] == 1


def test_a_device_that_draws_by_another_law_is_status_1(capsys, monkeypatch):
    right = SymbolDraw.apply
    monkeypatch.setattr(
        SymbolDraw, "apply", lambda draw, x, word: min(int(right(draw, x, word)), draw.size - 2)
    )
    options = ["--mechanism", "grr", "--epsilon", "1", "--trials", "1000", "--recordings", "1000"]
    status, lines, _ = run(capsys, *options)
    assert status == 1
    assert any("a device draws by another law than the certificate's" in line for line in lines)


def test_without_the_folder_of_papers_there_are_no_claims(monkeypatch, tmp_path):
    assert audit.published()
    monkeypatch.setattr(audit, "__file__", str(tmp_path / "sotto" / "audit.py"))
    assert audit.published() == []
