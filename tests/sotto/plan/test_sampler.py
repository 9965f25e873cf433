"""The integers of a plan's samplers, as a document; ``tests/conformance`` has every mechanism's."""

from __future__ import annotations

import json

from plan_texts import plan_head

import sotto_cli
from sotto.plan.compile import parse_plan
from sotto.plan.sampler import FORMAT, sampler_json

TEXT = (
    plan_head("sampler", (10, 100))
    + """\
  colour: {type: category, domain: [red, green], outside: other, mechanism: grr, window: 7d,
    ladder: [{epsilon: 1}, {epsilon: 2}]}
  length: {type: number, range: [0, 1], outside: clip, window: 7d, ladder: [{epsilon: 4}]}
"""
)


def test_a_symbols_integers_cover_all_words_and_are_text() -> None:
    colour, length = json.loads(sampler_json(parse_plan(TEXT).compile()))["metrics"]
    for draw in colour["chain"]["draws"]:
        assert int(draw["keep"]) + 2 * int(draw["other"]) == 2**64
    for row in length["chain"]["draws"][0]["rows"]:
        assert sum(int(weight) * times for weight, times in row) == 2**64


def test_the_command_writes_it_to_standard_output_or_a_file(tmp_path, capsysbinary) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(TEXT)
    compiled = parse_plan(TEXT).compile()
    assert sotto_cli.main(["plan", "sampler", str(plan)]) == 0
    assert capsysbinary.readouterr().out == sampler_json(compiled)
    assert sotto_cli.main(["plan", "sampler", str(plan), "-o", str(tmp_path / "sampler.json")]) == 0
    assert capsysbinary.readouterr().out.decode().strip() == compiled.fingerprint_hex
    document = json.loads((tmp_path / "sampler.json").read_bytes())
    assert (document["format"], document["fingerprint"]) == (FORMAT, compiled.fingerprint_hex)
