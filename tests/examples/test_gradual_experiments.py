"""The two experiments of gradual release, small, within what theory allows."""

from __future__ import annotations

import math

import pytest
from statistical import check_normal, check_variance

from examples.gradual.__main__ import (
    BITS,
    KINDS,
    LADDER,
    PERMANENT,
    SAMPLE,
    attack_rows,
    chains_of,
    main,
    noisy_epsilons,
    share_rows,
    variance_rows,
)
from mechanisms.testing import SeededSource
from papers.gradual_release.comparison import noisy_sampling_epsilon
from papers.gradual_release.formulas import response_shares

SEED, REPEATS = 7, 200


@pytest.mark.parametrize(
    ("counts", "epsilons"), [(BITS, noisy_epsilons()), (KINDS, list(LADDER))], ids=["bits", "kinds"]
)
def test_shares_and_attacks_fit_their_theory(counts: list[int], epsilons: list[float]) -> None:
    chains = chains_of(counts, epsilons, REPEATS, SeededSource(SEED))
    assert chains.shape == (REPEATS, sum(counts), len(epsilons))
    label = f"seed {SEED}"
    for row in share_rows(chains, counts, epsilons):
        check_normal(row.mean, row.true, row.theory / REPEATS**0.5, label=label)
        assert row.deviation == pytest.approx(row.theory, rel=0.35)
    for attack in attack_rows(chains, counts, epsilons):
        if attack.name in ("LO", "MLE"):
            check_normal(attack.error_rate, attack.least, attack.standard_error, label=label)
        else:
            assert attack.error_rate > attack.least + 5 * attack.standard_error
    with pytest.raises(AssertionError):
        check_normal(attack.error_rate, attack.least, attack.standard_error, label=label)


def test_variances_fit_their_theory() -> None:
    source, epsilons = SeededSource(SEED), noisy_epsilons()
    chains = chains_of(BITS, epsilons, REPEATS, source)
    rows = variance_rows(chains, epsilons, source)
    assert [row.samples for row in rows] == list(range(1, 11))
    for row in rows:
        exact = noisy_sampling_epsilon(PERMANENT, SAMPLE, row.samples)
        assert 0 <= exact - row.epsilon < 1e-6
        assert row.relaxation == pytest.approx(row.relaxation_theory, rel=0.35)
        assert row.noisy_sampling == pytest.approx(row.noisy_sampling_theory, rel=0.35)
        assert row.relaxation_theory <= row.noisy_sampling_theory * (1 + 1e-9)
    assert rows[-1].noisy_sampling > 2 * rows[-1].relaxation
    ones = chains[:, :, -1].sum(axis=1).tolist()
    found = [response_shares(epsilons[-1], [1000 - k, k])[1] for k in ones]
    check_variance(found, rows[-1].relaxation_theory, label=f"seed {SEED}")
    with pytest.raises(AssertionError):
        check_variance(found, rows[-1].noisy_sampling_theory)


def test_the_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--repeats", "3", "--seed", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 repetitions, seed 2"
    assert sum(line.startswith(("LO ", "MLE ", "HF ", "WHF ")) for line in lines) == 8
    assert sum(" ± " in line for line in lines) == 10 + 50 + 8 + 4
    numbers = [word for line in lines for word in line.split() if word.replace(".", "").isdigit()]
    assert all(math.isfinite(float(word)) for word in numbers)


def test_too_few_repetitions_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--repeats", "1"])
    assert "at least 2" in capsys.readouterr().err
