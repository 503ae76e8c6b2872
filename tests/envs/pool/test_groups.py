"""The seeds of groups: who begins together, also where an episode had to be replaced."""

from envs.pool.groups import group_seeds


def test_each_replacement_of_an_episode_has_another_seed():
    one, two, other = map(iter, group_seeds(1, range(0, 3), group_size=2))
    firsts = [next(one), one.substitute(), one.substitute(), next(one)]
    assert len(set(firsts)) == 4 and all(seed % 2 == 0 for seed in firsts)
    # the other member of the group meets the same episodes, another group does not
    assert [next(two), two.substitute(), two.substitute(), next(two)] == firsts
    assert next(other) not in firsts
