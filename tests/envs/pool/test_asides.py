"""Calls of a program whose answers are no samples: they belong to the turn before them."""

from functools import partial

import gymnasium
import pytest
from conftest import FakePrompt
from gymnasium.spaces import Text

from common.chat import Sampling
from envs.contract import EnvError
from envs.pool import faults
from envs.pool.seeds import training_seeds
from envs.text_env import Aside, Step
from ppo.engines.contract import Response
from ppo.evaluation import Panel
from reports.zero_shot import Transcript

TEXT = Text(1000)


class Script(gymnasium.Env):
    """Asks as the script of its seed (from 1) says: t is a turn that is trained, u a call that is
    not. The answer to call k (from 0) pays 2^k, the last one ends the episode, "raise" fails."""

    observation_space = action_space = TEXT

    def __init__(self, *scripts: str):
        self.scripts = scripts

    def reset(self, *, seed=None, options=None):
        self.script, self.k = self.scripts[(seed - 1) % len(self.scripts)], 0
        return self._asked()

    def step(self, response):
        if response == "raise":
            raise KeyError("lost")
        reward, self.k = 2.0**self.k, self.k + 1
        text, info = self._asked()
        facts = dict(said=response, action=response, valid=response != "bad", action_at=0)
        end = self.k == len(self.script)
        return text, reward, end, False, info | facts | dict(success=end)

    def _asked(self):
        kind = (self.script + "t")[self.k]
        sampling = Sampling(extra={"top_p": 0.5} if kind == "u" else {})
        text = f"call {self.k}"
        return text, dict(system="", instruction="", kept=text, sampling=sampling)


def play(vec_env, said=()):
    """Answer all calls until the seeds are used up, with "a0", "a1", ... where nothing is `said`.
    Returns what came."""
    came, said = [], dict(said)
    for k in range(20):
        vec_env.send(0, said.get(k, f"a{k}"))
        [(_, step)] = vec_env.poll()
        came.append(step)
        if step.complete and step.done and step.first is None:
            break
    return came


def two_episodes(pool, *scripts: str, **options):
    vec_env = pool(partial(Script, *scripts), [[1, 2]], **options)
    return vec_env, vec_env.reset()[0]


@pytest.mark.parametrize("options", [{}, {"threads": 1}, {"workers": 1}])
def test_what_follows_a_call_belongs_to_the_turn_before_it(pool, options):
    vec_env, first = two_episodes(pool, "tuut", "tu", **options)
    assert first.trained
    aside, again, turn, last, third, end = play(vec_env, {1: "bad"})
    assert [type(step) for step in (aside, again)] == [Aside, Aside]
    assert [step.observation.text for step in (aside, again)] == ["call 1", "call 2"]
    # turn 1: the answer to call 0 (1), and to calls 1 (2) and 2 (4), which are no samples
    assert (turn.response, turn.reward, turn.number, turn.valid) == ("a0", 7.0, 1, True)
    assert turn.observation.text == "call 3" and turn.observation.trained and not turn.done
    assert (last.response, last.reward, last.number, last.done) == ("a3", 8.0, 4, True)
    assert last.first.text == "call 0" and last.saw != turn.saw
    assert type(third) is Aside
    assert (end.response, end.reward, end.terminated, end.success) == ("a4", 3.0, True, True)


def test_what_is_paid_before_the_first_turn_belongs_to_it(pool):
    vec_env, first = two_episodes(pool, "uut", "t")
    assert not first.trained
    aside, again, turn, end = play(vec_env)
    assert type(aside) is Aside and not aside.observation.trained
    assert type(again) is Aside and again.observation.trained  # now the turn can be asked for
    assert (turn.response, turn.reward, turn.number) == ("a2", 7.0, 3)
    assert end.reward == 1.0  # nothing is owed any more


def test_an_episode_without_a_turn_is_a_fault_and_the_next_one_takes_its_place(pool):
    vec_env, _ = two_episodes(pool, "uu", "t")
    aside, instead, turn = play(vec_env)
    assert type(aside) is Aside and aside.observation.text == "call 1"
    assert type(instead) is Aside and instead.observation.trained
    assert instead.observation.text == "call 0"
    assert isinstance(turn, Step) and turn.episode == 1 and not turn.fault
    [fault] = vec_env.faults
    assert fault["error"].startswith("the program ended without a turn that is trained")
    vec_env, _ = two_episodes(pool, "t", "u")
    with pytest.raises(EnvError, match="ended without a turn that is trained"):
        play(vec_env)  # and no seed is left for another one


def test_a_panel_counts_an_episode_without_a_turn_as_a_failure(pool):
    vec_env = pool(partial(Script, "uu", "t", "u"), [iter([1, 2, 3])], proven=True)
    vec_env.reset()
    aside, lost, won, last = play(vec_env)
    assert type(aside) is Aside
    assert [(step.seed, step.success, step.reward) for step in (lost, won, last)] == [
        (1, False, 0.0), (2, True, 1.0), (3, False, 0.0)]  # fmt: skip
    assert lost.truncated and lost.first.text == "call 0" and last.first is None
    assert lost.fault == last.fault.replace("seed 3, step 1", "seed 1, step 2")
    panel = Panel(1, transcript=Transcript())
    said = Response(FakePrompt([1]), [1], [0.0], "a", ["a"], False)
    for step in (lost, won, last):
        if step is won:
            panel.act(0, said)
        panel.insert(0, step)
    panel.join()
    assert (panel.summary()["eval/success"], panel.summary()["eval/episodes"]) == (1 / 3, 3)
    assert panel.transcript.episodes == 1 and panel.full is False and not panel.wants(0)


def test_episodes_without_turns_end_a_run_in_which_nothing_else_happens(pool, monkeypatch):
    monkeypatch.setattr(faults, "PAUSE", 0.0)
    vec_env = pool(partial(Script, "u"), training_seeds(0, range(1)))
    vec_env.reset()
    with pytest.raises(EnvError, match="faults in a row"):
        play(vec_env)


def test_a_fault_in_a_call_cuts_the_turn_before_it(pool):
    vec_env, _ = two_episodes(pool, "tuut", "t")
    _, _, cut, _ = play(vec_env, {2: "raise"})
    assert (cut.response, cut.reward, cut.number) == ("a0", 3.0, 1)
    assert cut.truncated and not cut.terminated and "lost" in cut.fault
    assert cut.first.text == "call 0"


def test_a_fault_before_the_first_turn_begins_the_next_episode(pool):
    vec_env, _ = two_episodes(pool, "ut", "t")
    instead, turn = play(vec_env, {0: "raise"})
    assert type(instead) is Aside and instead.observation.trained
    assert turn.reward == 1.0 and turn.episode == 1


def test_a_worker_that_dies_has_its_calls_played_again(pool):
    vec_env, _ = two_episodes(pool, "tuut", "t", workers=1)
    vec_env.send(0, "a0")
    assert type(vec_env.poll()[0][1]) is Aside
    [worker] = vec_env.home.workers
    worker.process.kill()
    worker.process.join()
    assert vec_env.poll(wait=False) == []  # it is noticed while nobody waits for an answer
    assert [step.reward for step in play(vec_env)[1:]] == [7.0, 8.0, 1.0]


def test_a_state_goes_on_behind_a_turn_with_calls(pool):
    vec_env, _ = two_episodes(pool, "tut", "t")
    for said in ("a0", "a1"):
        vec_env.send(0, said)
        [(_, step)] = vec_env.poll()
    again = pool(partial(Script, "tut", "t"), [[1, 2]])
    [(first, steps)] = again.resume(vec_env.state_dict())
    assert first.text == "call 0" and steps == [step]
    assert play(again)[0].reward == 4.0


class Elsewhere(Script):
    """Fails in its second call when it is played again. folder: tells that it was played"""

    def __init__(self, folder, *scripts: str):
        super().__init__(*scripts)
        self.played = folder / "played"

    def step(self, response):
        if self.k == 1 and self.played.exists():
            raise KeyError("lost")
        return super().step(response)


@pytest.mark.parametrize(("script", "number"), [("ttut", 2), ("tuut", 1), ("tut", 1)])
def test_a_turn_with_calls_is_cut_where_it_cannot_be_played_again(pool, script, number, tmp_path):
    vec_env = pool(partial(Elsewhere, tmp_path, script, "t"), [[1, 2]], workers=1)
    vec_env.reset()
    calls = script.rindex("u")  # is under way when the worker dies
    for k in range(calls):
        vec_env.send(0, f"a{k}")
        came = vec_env.poll()[0][1]
    assert type(came) is Aside
    (tmp_path / "played").touch()
    [worker] = vec_env.home.workers
    worker.process.kill()
    worker.process.join()
    assert vec_env.poll(wait=False) == []
    vec_env.send(0, "a")
    [(_, cut)] = vec_env.poll()
    assert isinstance(cut, Step) and cut.truncated and "lost" in cut.fault
    # the turn that waits for its end, with what it was paid: all calls but the one under way
    assert (cut.response, cut.number) == (f"a{number - 1}", number)
    assert cut.reward == sum(2.0**k for k in range(number - 1, calls))
