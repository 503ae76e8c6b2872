"""Values beside the truth: replay is exact, noise is taken out, and figures are those by hand."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import critic
import main
from arguments import get_args
from ppo.continuations import Start, returns_to_go
from reports.critic_page import State, figures, interval
from run.saved import checkpoints
from storage.collection import Turn

RUN = """--env-name babyai-goto --engine transformers --n-env 3 --e-len 2 --minibatch 6 --w-epoch 1
--num-updates 1 --save-interval 1 --eval-interval 0 --max-episode-steps 7"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    assert main.main(get_args([*RUN.split(), "--run-dir", str(path)])) == 0
    return path


# ---- replay and continuations -------------------------------------------------------------------


def test_an_episode_goes_on_from_a_turn_as_it_went_on_before(run):
    judged = critic.Judged(get_args(["--resume", str(run), "--eval-only"]))
    judged.load(run, checkpoints(run)[-1])
    seeds = [1, 3, 5, 7]  # more than environments
    panel = [Start(seed, {}) for seed in seeds]
    played = {start.seed: turns for start, turns in judged.play(panel)}
    t = 3
    long = [(seed, turns, t) for seed, turns in played.items() if len(turns) > t]
    same_noise = judged.play([critic.start_at(*state, 0) for state in long])
    again = {(start.seed, start.t): turns for start, turns in same_noise}
    own_noise = judged.play(
        [critic.start_at(*state, member) for state in long for member in range(1, 9)]
    )
    other = [((start.seed, start.t), turns) for start, turns in own_noise]
    assert long and len(other) == 8 * len(long)
    for seed, turns, _ in long:
        assert [turn.response.ids for turn in again[seed, t]] == [
            turn.response.ids for turn in turns[t:]
        ]
        assert [turn.step for turn in again[seed, t]] == [turn.step for turn in turns[t:]]
    differ = [
        [turn.response.ids for turn in turns] != [turn.response.ids for turn in again[key]]
        for key, turns in other
    ]
    assert any(differ)


def test_a_page_of_every_checkpoint(run, capsys):
    words = [str(run), "--episodes", "3", "--states", "2", "--continuations", "2"]
    assert critic.main(words) == 0
    page = (run / "critic.md").read_text()
    assert "## After 0 updates" in page and "## After 1 updates" in page
    assert page in capsys.readouterr().out
    assert (run / "critic.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((run / "critic.json").read_text())
    for states in found.values():
        assert {state["seed"] for state in states} == {1, 3, 5}
        assert all(len(state["returns"]) == 2 for state in states)


def test_what_is_expected_without_a_critic():
    def episode(rewards, shown):
        turns = zip(rewards, shown, strict=True)
        return [Turn(None, SimpleNamespace(reward=r, previous_digest=s)) for r, s in turns]

    episodes = {
        1: episode([0, 0, 1], "abc"),
        3: episode([0, 1], "ab"),  # ends before turn 2
        5: episode([0, 0, 0, 2], "abcd"),
    }
    ahead = {seed: returns_to_go(turns, 0.5) for seed, turns in episodes.items()}
    group = [episode([0, 4], "ac"), episode([0, 0], "ab")]
    assert returns_to_go(episodes[1], 0.5) == [0.25, 0.5, 1.0]
    found = critic.expected(ahead, group, 1, episodes[1][2], 2, gamma=0.5)
    # of the others only episode 5 has a turn 2, where 0 + .5 * 2 is ahead
    # a group's members earn .5 * 4 and 0; one of them came to "c", where 4 is ahead
    assert list(found.values()) == [1.0, 1.0, 4.0]
    first = critic.expected(ahead, group, 1, episodes[1][0], 0, gamma=0.5)
    assert list(first.values()) == [(0.5 + 0.25) / 2, 1.0, 1.0]  # both members began at "a"
    del ahead[5]
    nowhere = critic.expected(ahead, group, 1, episodes[1][2], 2, gamma=0.5)
    assert list(nowhere.values())[0] == 1.0  # nobody got so far: the last turn of those who did not


@pytest.mark.parametrize(
    ("settings", "words", "line"),
    [
        ({}, ["--continuations", "1"], "--continuations must be 2 or more, got 1"),
        ({}, [], "run has no checkpoint yet"),
        ({"advantages": "rloo"}, [], "has no critic: its advantages are rloo"),
        ({"use_proper_time_limits": True}, [], "bootstraps at time limits"),
    ],
)
def test_what_cannot_be_judged_is_one_line(settings, words, line, run, tmp_path, capsys):
    saved = json.loads((run / "args.json").read_text())
    path = tmp_path / "run"
    path.mkdir()
    (path / "args.json").write_text(json.dumps(saved | {"args": saved["args"] | settings}))
    assert critic.main([str(path), *words]) == 2
    assert line in capsys.readouterr().err.splitlines()[-1]


# ---- figures ------------------------------------------------------------------------------------


def state(seed: int, returns: list[float], expected: float) -> State:
    return State(seed, 0, 4, returns, {"critic": expected})


def test_figures_by_hand():
    # truths 1 and 3 without noise: their variance is 1, that of truth - expected (0, 1) is 1/4
    found = figures([state(1, [1, 1], 1), state(3, [3, 3], 2)], "critic")
    assert (found.explained, found.correlation, found.bias) == (0.75, 1.0, -0.5)
    # the noise of the first truth is ((0 - 1)^2 + (2 - 1)^2) / 2 = 1, of both on average 1/2
    found = figures([state(1, [0, 2], 1), state(3, [3, 3], 2)], "critic")
    assert found.explained == 1 - (0.25 - 0.5) / (1 - 0.5)
    assert found.correlation == pytest.approx(0.5 / (0.5 * np.sqrt(0.5)))
    found = figures([state(1, [0, 2], 1), state(3, [0, 2], 2)], "critic")
    assert (found.explained, found.correlation, found.bias) == (None, None, 0.5)


def test_noise_is_taken_out():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=4000)
    returns = truth[:, None] + 2 * rng.normal(size=(4000, 4))
    expected = truth + 0.5 * rng.normal(size=4000)  # it explains 1 - .25 of a variance of 1
    states = [
        state(k // 4, list(r), e) for k, (r, e) in enumerate(zip(returns, expected, strict=True))
    ]
    found = figures(states, "critic")
    assert found.explained == pytest.approx(0.75, abs=0.05)
    assert found.correlation == pytest.approx(1 / np.sqrt(1.25), abs=0.05)
    low, high = interval(states, "critic")
    assert low < 0.75 < high and high - low < 0.2
    assert interval(states[:36], "critic") is None  # nine episodes
