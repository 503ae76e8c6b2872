"""The toy environment against numbers worked out by hand."""

import pytest
from gymnasium.utils.env_checker import check_env

from envs import make_env
from envs.games.toy import Toy
from envs.variants import make_variant


def colour(text: str) -> str:
    return text.removeprefix("The colour is ").removesuffix(".")


def play(env, seed, responses):
    """Steps (reward, terminated, truncated, success) of `responses`; None is the right word."""
    text, _ = env.reset(seed=seed)
    steps = []
    for response in responses:
        text, *rest, info = env.step(response or f"ACTION: {colour(text)}")
        steps.append((*rest, info["success"]))
    return steps, info


def test_all_right():
    steps, info = play(Toy(turns=4), 0, [None] * 4)
    # 1 / 4 for each of the four
    assert steps == [(0.25, False, False, False)] * 3 + [(0.25, True, False, True)]
    assert info["metrics"] == {"right": 1.0}


def test_one_wrong():
    steps, info = play(Toy(turns=4), 0, [None, "ACTION: pass", None, "I do not know."])
    # an invalid output runs "pass" and costs 0.1 on top of the share
    assert [step[0] for step in steps] == [0.25, 0, 0.25, -0.1]
    assert steps[-1][1:] == (True, False, False)
    assert info["metrics"] == {"right": 0.5}


def test_an_invalid_response_may_end_the_episode():
    env = make_variant("toy", on_invalid="end")
    # nothing is executed that counts, and the costs are the usual .1
    steps, info = play(env, 0, [None, "I do not know."])
    assert steps == [(0.25, False, False, False), (-0.1, True, False, False)]
    assert info["metrics"] == {"right": 0.25}
    # a word that is wrong, but allowed, ends nothing; nor does an invalid one without the option
    assert play(env, 0, ["ACTION: pass"])[0] == [(0.0, False, False, False)]
    assert play(make_env("toy"), 0, ["I do not know."])[0] == [(-0.1, False, False, False)]
    with pytest.raises(ValueError, match="--on-invalid end: tools-calculator reads whole messages"):
        make_variant("tools-calculator", on_invalid="end")


def test_time_limit_and_binary_reward():
    env = Toy(max_episode_steps=2)
    env.binary_reward = True
    steps, _ = play(env, 0, [None, None])
    assert steps == [(1.0, False, False, False), (1.0, False, True, False)]


def test_seed_decides_the_colours():
    first, second = Toy(turns=50), Toy(turns=50)
    first.reset(seed=1)
    second.reset(seed=1)
    assert first.shown == second.shown and set(first.shown) == {"red", "green", "blue"}
    first.reset()
    second.reset()
    assert first.shown == second.shown  # also the next episode
    second.reset(seed=2)
    assert first.shown != second.shown


def test_names_its_actions():
    _, info = Toy().reset(seed=0)
    assert "pass, red, green, blue" in info["system"]


@pytest.mark.filterwarnings("error")
def test_gymnasium_checker():
    check_env(Toy(), skip_render_check=True)
