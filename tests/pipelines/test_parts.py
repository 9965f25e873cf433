"""Which part of a period a shard is in."""

from __future__ import annotations

import numpy as np

from pipelines.aggregation.decode import CHAINS, Parts, parts_for


def test_many_are_placed_as_each_is() -> None:
    parts = Parts({-3: 1, 5: 8, 7: 64}, new=4)
    draw = np.random.default_rng(5)
    shards, periods = draw.integers(0, 64, 1000), draw.choice([-3, 5, 6, 7, 2**40], 1000)
    placed = parts.place(shards, periods)
    assert placed.tolist() == [
        parts.part_of(shard, period)
        for shard, period in zip(shards.tolist(), periods.tolist(), strict=True)
    ]
    assert len(set(placed[periods == 7].tolist())) > 32
    assert set(placed[periods == -3].tolist()) == {0}


def test_a_part_is_expected_to_have_few_chains_and_shards_are_the_limit() -> None:
    assert [parts_for([1, chains], 6) for chains in (0, 1, CHAINS)] == [1, 1, 1]
    assert [parts_for([chains, 0], 6) for chains in (CHAINS + 1, 3 * CHAINS, 5 * CHAINS)] == [
        2,
        4,
        6,
    ]
