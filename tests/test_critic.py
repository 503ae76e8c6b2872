"""Values beside the truth: replay is exact, noise is taken out, and figures are those by hand."""

import json
import math
import shutil
from collections import Counter
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Text

import critic
import main
from arguments import get_args
from envs.dialogue import Dialogue
from envs.errors import EnvError
from ppo.continuations import Start, returns_to_go
from recipes import TINY
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
        ({"env_name": "agent:nowhere:solve"}, [], "an agent's program may act on the world"),
        ({"env_name": "agent:nowhere:solve"}, ["--trust"], "program may act on the world"),
        ({"env_name": "nowhere:Env-v0"}, [], "--env-name nowhere:Env-v0; --trust allows it if"),
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


# ---- environments of a user's own ----------------------------------------------------------------

resets, working = Counter(), {}  # of each seed; after how many the second turn fails


class Frail(gymnasium.Env):
    """An episode has 3 turns, each of which pays 1."""

    observation_space = action_space = Text(100)
    door = "closed"

    def reset(self, *, seed=None, options=None):
        resets[seed] += 1
        self.seed, self.turns = seed, 0
        return self.text(), {}

    def step(self, action):
        self.turns += 1
        if self.turns == 2 and resets[self.seed] > working.get(self.seed, math.inf):
            raise ConnectionError("down")
        return self.text(), 1.0, self.turns == 3, False, {}

    def text(self):
        return f"turn {self.turns}, the door is {self.door}"


class Human(Dialogue):
    """A user who never answers twice in the same way."""

    replayable = False

    def open(self, seed):
        return "Hello?"

    def user(self, history):
        return "No.", 0.0, True


for env_class in (Frail, Human):
    gymnasium.register(f"{env_class.__name__}-v0", env_class)

OWN = """--env-name test_critic:Frail-v0 --memory memory.window:WindowMemory
--engine ppo.engines.lockstep:TransformersEngine --advantages ppo.advantages.gae:dual_gae"""
SHORT = f"""--model {TINY} --n-env 2 --e-len 1 --minibatch 2 --w-epoch 1 --num-updates 1
--save-interval 1 --eval-interval 0 --response-limit 4 --format-penalty 0 --gamma-step 0.5"""
COUNTS = ["--episodes", "3", "--states", "3", "--continuations", "2"]


@pytest.fixture(scope="module")
def own_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "own"
    words = [*OWN.split(), *SHORT.split(), "--run-dir", str(path)]
    assert main.main(get_args(words)) == 0
    return path


@pytest.fixture(autouse=True)
def works_again():
    resets.clear()
    working.clear()


def test_a_trusted_run_of_own_modules_is_judged(own_run, capsys):
    assert critic.main([str(own_run), *COUNTS]) == 2
    error = capsys.readouterr().err
    order = ["--env-name", "--engine", "--memory", "--advantages", "--trust allows it"]
    assert error.count("\n") == 1 and sorted(order, key=error.index) == order
    assert critic.main([str(own_run), *COUNTS, "--trust"]) == 0
    found = json.loads((own_run / "critic.json").read_text())
    # from turn t on: 1 + .5 + .25, 1 + .5, 1
    returns = [(state["turn"], state["returns"]) for state in found["1"]]
    assert returns == [(0, [1.75] * 2), (1, [1.5] * 2), (2, [1.0] * 2)] * 3


def judge(run):
    judged = critic.Judged(critic.args_of(run, trust=True))
    judged.load(run, checkpoints(run)[-1])
    return judged


def test_a_start_that_a_fault_keeps_from_being_reached_is_left_out(own_run):
    judged, seeds = judge(own_run), [1, 3, 5]
    panel = [Start(seed, {}) for seed in seeds]
    played = {start.seed: turns for start, turns in judged.play(panel)}
    starts = [critic.start_at(seed, played[seed], 2, m) for seed in seeds for m in range(3)]
    working[3] = 0  # from now on
    found = [(start, returns_to_go(turns, 0.5)) for start, turns in judged.play(starts)]
    assert found == [(start, [1.0]) for start in starts if start.seed != 3]
    faults = [(fault["seed"], fault["step"]) for fault in judged.branches.envs.faults]
    assert faults == [(3, 2)] * 3
    working.clear()
    assert [start for start, _ in judged.play(starts)] == starts
    judged.close()


def test_an_episode_that_cannot_begin_is_left_out(own_run, monkeypatch):
    def reset(self, *, seed=None, options=None):
        if seed == 3:
            raise ConnectionError("down")
        return begin(self, seed=seed, options=options)

    begin, judged = Frail.reset, judge(own_run)
    monkeypatch.setattr(Frail, "reset", reset)
    monkeypatch.setattr("envs.pool.faults.PAUSE_SECONDS", 0.0)
    played = judged.play([Start(seed, {}) for seed in (1, 3, 5)])
    assert [start.seed for start, _ in played] == [1, 5]
    judged.close()


def test_faults_that_are_too_frequent_end_it(own_run, monkeypatch):
    def reset(self, *, seed=None, options=None):
        answer = begin(self, seed=seed, options=options)
        if resets[seed] == 1:
            raise ConnectionError("down")
        return answer

    begin, judged = Frail.reset, judge(own_run)
    monkeypatch.setattr(Frail, "reset", reset)
    with pytest.raises(EnvError, match="^3 of 4 episodes failed: .*down"):
        [*judged.play([Start(seed, {}) for seed in (1, 3, 5, 7)])]
    judged.close()


def test_a_replay_that_leads_elsewhere_ends_it(own_run, monkeypatch):
    judged = judge(own_run)
    ((_, turns),) = judged.play([Start(1, {})])
    monkeypatch.setattr(Frail, "door", "open")
    with pytest.raises(EnvError, match="the environment now shows something else"):
        [*judged.play([critic.start_at(1, turns, 2, 0)])]
    judged.close()


def test_states_that_faults_leave_are_judged(own_run):
    # Seed 3 works in its evaluation episode and two of its group. Then each turn 1 fails:
    # continuations from turns 0 and 1 are cut, and turn 2 is not reached.
    working[3] = 3
    assert critic.main([str(own_run), *COUNTS, "--trust"]) == 0
    found = json.loads((own_run / "critic.json").read_text())
    for states in found.values():
        assert [(state["seed"], state["turn"]) for state in states] == [
            (seed, t) for seed in (1, 5) for t in range(3)
        ]


@pytest.mark.parametrize(
    "fails", [{1: 0, 3: 0, 5: 0}, {3: 0, 5: 0}, {3: 1, 5: 1}, {3: 3, 5: 3}, {1: 3, 3: 3, 5: 3}]
)  # after 0 the evaluation episode, after 1 its group, after 3 the continuations
def test_too_few_episodes_are_one_line(fails, own_run, capsys):
    working.update(fails)
    assert critic.main([str(own_run), *COUNTS, "--trust"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "faults leave fewer than 2 of 3 episodes to compare" in line
    assert line.endswith("ConnectionError('down')")


def test_an_environment_that_says_it_cannot_be_replayed_is_refused(own_run, tmp_path, capsys):
    run = shutil.copytree(own_run, tmp_path / "run")
    saved = json.loads((run / "args.json").read_text())
    saved["args"]["env_name"] = "test_critic:Human-v0"
    (run / "args.json").write_text(json.dumps(saved))
    assert critic.main([str(run), *COUNTS, "--trust"]) == 2
    assert "test_critic:Human-v0 says that equal responses" in capsys.readouterr().err


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
    # .1 + .2 is above .3 by a rounding error
    same = [state(k, [x, x], 0.3 * k) for k, x in enumerate((0.3, 0.1 + 0.2, 0.3))]
    assert figures(same, "critic").explained is None


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
