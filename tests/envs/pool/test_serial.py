"""Training seeds differ between environments and runs; the panel's are the same on all ranks."""

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from envs.pool.evaluation import evaluation_seeds
from envs.pool.serial import training_seeds

numbers = st.integers(0, 2**31 - 1)


@given(seed=numbers, i=st.integers(0, 1023))
def test_training_seeds(seed, i):
    mine, next_one = training_seeds(seed, range(i, i + 2))
    seeds = list(islice(mine, 4))
    assert seeds == list(islice(mine, 4))  # every iteration begins again
    assert all(s % 2 == 0 and 0 <= s < 2**31 for s in seeds)
    assert len({*seeds, *islice(next_one, 4)}) == 8
    [other_run] = training_seeds(seed + 1, range(i, i + 1))
    assert len({*seeds, *islice(other_run, 4)}) == 8


def test_training_seeds_are_the_recorded_ones():
    # recorded with an earlier version: a run that is repeated must play the same episodes
    assert list(islice(training_seeds(7, range(3, 4))[0], 3)) == [
        1675799474, 1105958828, 1992164636]  # fmt: skip
    assert list(islice(training_seeds(0, range(1))[0], 2)) == [1484405854, 1658617642]


@given(ranks=st.integers(1, 4), per_rank=st.integers(1, 5), episodes=st.integers(0, 30))
def test_evaluation_seeds_depend_on_the_episode_only(ranks, per_rank, episodes):
    n_env, panel = ranks * per_rank, []
    for rank in range(ranks):
        mine = range(rank * per_rank, (rank + 1) * per_rank)
        seeds = evaluation_seeds(episodes, n_env, mine)
        assert len(seeds) == per_rank and len({id(one) for one in seeds}) == 1
        share = list(seeds[0])
        assert share == sorted(share)
        assert {(s - 1) // 2 % n_env for s in share} <= set(mine)
        panel += share
    assert sorted(panel) == [2 * k + 1 for k in range(episodes)]
