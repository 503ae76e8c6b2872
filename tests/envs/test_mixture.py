"""One policy for many tasks: what a name stands for, and which episode plays which task."""

from collections import Counter

import pytest

from arguments import get_args
from common.plugins import UserError
from envs import names
from envs.mixture import Mixture, draw_task, tasks_of
from envs.text_env import act, begin
from envs.variants import make_variant

TWO = "babyai-goto,babyai-pickup=3"


def test_what_a_name_stands_for():
    assert tasks_of("crafter") == {"crafter": 1.0}
    assert tasks_of(TWO) == {"babyai-goto": 1.0, "babyai-pickup": 3.0}
    everything = [name for name in names() if name.startswith("baba-two_room-")]
    assert [*tasks_of("baba-two_room-*")] == everything and len(everything) > 10


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("babyai-goto,crafter", "babyai-goto and crafter; several tasks must be of one family"),
        ("babyai-goto,babyai-*", "babyai-goto is named twice"),
        ("babyai-goto,babyai-fly", "unknown environment 'babyai-fly'; nearest first: babyai-"),
        ("babyai-goto=0,babyai-open", "the weight in 'babyai-goto=0' must be a number above 0"),
        ("babyai-goto=nan,babyai-open", "the weight in 'babyai-goto=nan' must be a number above 0"),
        ("chess-*", "no environment is named like 'chess-*'"),
        ("babyai-goto,", "unknown environment ''"),
        ("agent:a:b,agent:c:d", "agents cannot be mixed"),
    ],
)
def test_a_wrong_name_is_one_line(name, line, capsys):
    with pytest.raises(UserError, match=line.replace("*", r"\*")):
        tasks_of(name)
    with pytest.raises(SystemExit):
        get_args(["--env-name", name])
    assert line in capsys.readouterr().err


def test_the_seed_draws_the_task_by_its_weight():
    drawn = Counter(draw_task(tasks_of(TWO), seed) for seed in range(0, 8_000, 2))
    # 3 of 4 episodes, with a standard error of sqrt(.75 x .25 / 4000) = .007
    assert drawn["babyai-pickup"] / 4_000 == pytest.approx(0.75, abs=0.03)


def test_an_episode_is_that_of_its_task():
    mixture, seeds = make_variant(TWO, max_episode_steps=3), range(0, 12, 2)
    assert isinstance(mixture, Mixture)
    for seed in seeds:
        task = draw_task(tasks_of(TWO), seed)
        alone = make_variant(task, max_episode_steps=3)
        assert begin(mixture, seed) == begin(alone, seed)
        for _ in range(3):
            step, same = act(mixture, "go forward"), act(alone, "go forward")
            assert (step.observation, step.reward) == (same.observation, same.reward)
            if step.done:
                break
        assert step.metrics == same.metrics | {f"success/{task}": float(step.success)}
    assert len({draw_task(tasks_of(TWO), seed) for seed in seeds}) == 2


def test_defaults_are_those_of_the_family():
    [one, many] = [get_args(["--env-name", name]) for name in ("baba-goto_win", "baba-goto_win*")]
    assert {**vars(one), "env_name": ""} == {**vars(many), "env_name": ""}


def test_your_own_words_are_those_of_the_family(tmp_path):
    (tmp_path / "prompts.toml").write_text('[babyai]\nsystem = "Please {mission}."\n')
    args = get_args(["--env-name", TWO, "--prompts", str(tmp_path / "prompts.toml")])
    first = begin(make_variant(args.env_name, prompts=args.prompts), 4)
    assert first.system.startswith("Please ")
