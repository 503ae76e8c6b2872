"""Calls of a program whose answers are no samples: they belong to the turn before them."""

from dataclasses import dataclass
from functools import partial

import pytest
from conftest import make_response
from scripted_calls import Elsewhere, Script

from common.chat import Chat, Sampling
from envs.agents.untrained import with_untrained_calls
from envs.errors import EnvError
from envs.pool import faults
from envs.pool.serial import training_seeds
from envs.text_env import Step
from memory.render import Prompt
from ppo.engines.contract import Response
from ppo.evaluation import EvaluationEpisodes
from reports.zero_shot import Transcript
from storage.collection import Turn
from storage.credit import moved


class Answers:
    """An engine: the response to call k is "a<k>", or what is `given` for it."""

    idle = True

    def __init__(self, given):
        self.given, self.asked, self.k, self.prompts = dict(given), [], 0, []

    def submit(self, i, prompt, seed):
        self.prompts.append(prompt.text)
        self.asked.append((i, prompt))

    def step(self):
        asked, self.asked, done = self.asked, [], []
        for i, prompt in asked:
            text = self.given.get(self.k, f"a{self.k}")
            self.k += 1
            done.append((i, Response(prompt, [1], [0.0], text, [text], False)))
        return done


@dataclass(frozen=True)
class ShownPrompt(Prompt):
    text: str = ""


def render(chat, before=()):
    return ShownPrompt([1], sampling=chat.sampling, text=chat[-1]["content"])


def chat_of(observation):
    return Chat([], [], list(observation.messages), sampling=observation.sampling)


def two_episodes(pool, *scripts: str, given=(), **options):
    """The pool and the engine as `collect` has them, and the first observation."""
    vec_env = pool(partial(Script, *scripts), [[1, 2]], **options)
    return wrapped(vec_env, given)


def wrapped(vec_env, given=(), evaluation=False):
    [first] = vec_env.reset()
    envs, engine = with_untrained_calls("untrained", vec_env, Answers(given), render, 0, evaluation)
    return envs, engine, first


def play(envs, engine, now, turns=20):
    """Do what `collect` does, for at most so many turns or until the seeds are used up. Returns
    the Steps, and checks that the engine gave away samples alone."""
    steps = []
    while len(steps) < turns:
        engine.submit(0, render(chat_of(now)), (0,))
        while True:
            for i, response in engine.step():
                assert response.prompt.sampling.trained
                envs.send(i, response.text)
            if came := envs.poll(wait=engine.idle and not engine.asked):
                break
        [(_, step)] = came
        steps.append(step)
        now = step.first if step.done else step.observation
        if now is None:
            break
    return steps


@pytest.mark.parametrize("options", [{}, {"threads": 1}, {"workers": 1}])
def test_rewards_after_an_untrained_call_belong_to_the_turn_before_it(pool, options):
    envs, engine, first = two_episodes(pool, "tuut", "tu", given={1: "bad"}, **options)
    turn, last, end = play(envs, engine, first)
    assert engine.prompts == ["call 0", "call 1", "call 2", "call 3", "call 0", "call 1"]
    # turn 1: the answer to call 0 (1), and to calls 1 (2) and 2 (4), which are no samples
    assert (turn.response, turn.reward, turn.number, turn.valid) == ("a0", 7.0, 1, True)
    assert turn.observation.text == "call 3" and turn.observation.sampling.trained
    assert not turn.done and turn.previous_text == "call 0"
    assert (last.response, last.reward, last.number, last.done) == ("a3", 8.0, 4, True)
    assert last.first.text == "call 0" and last.previous_digest != turn.previous_digest
    assert (end.response, end.reward, end.terminated, end.success) == ("a4", 3.0, True, True)


def test_rewards_before_the_first_turn_belong_to_it(pool):
    envs, engine, first = two_episodes(pool, "uut", "t")
    assert not first.sampling.trained
    turn, end = play(envs, engine, first)
    assert (turn.response, turn.reward, turn.number) == ("a2", 7.0, 3)
    assert end.reward == 1.0  # nothing is left over


def test_rewards_for_earlier_calls_find_their_turns(pool):
    # call 3 pays for turn 1, and call 4, a turn, for call 2, which is untrained: so for turn 1
    envs, engine, first = two_episodes(pool, "tuut", "t", given={2: "for 1", 3: "for 2"})
    steps = play(envs, engine, first)
    assert [step.reward for step in steps] == [1 + 2 + 4, 8, 1]
    turns = moved([Turn(None, step) for step in steps])
    assert [turn.step.reward for turn in turns] == [1 + 2 + 4 + 8, 0, 1]


def test_an_episode_without_a_turn_is_a_fault_and_the_next_one_takes_its_place(pool):
    envs, engine, first = two_episodes(pool, "uu", "t")
    [turn] = play(envs, engine, first)
    assert engine.prompts == ["call 0", "call 1", "call 0"]
    assert isinstance(turn, Step) and turn.episode == 1 and not turn.fault
    [fault] = envs.faults
    assert fault["error"].startswith("the program ended without a trained turn")
    envs, engine, first = two_episodes(pool, "t", "u")
    with pytest.raises(EnvError, match="ended without a trained turn"):
        play(envs, engine, first)  # and no seed is left for another one


def test_an_evaluation_counts_an_episode_without_a_turn_as_a_failure(pool):
    vec_env = pool(partial(Script, "uu", "t", "u"), [iter([1, 2, 3])], proven=True)
    lost, won, last = play(*wrapped(vec_env, evaluation=True))
    assert [(step.seed, step.success, step.reward) for step in (lost, won, last)] == [
        (1, False, 0.0), (2, True, 1.0), (3, False, 0.0)]  # fmt: skip
    assert lost.truncated and lost.first.text == "call 0" and last.first is None
    assert lost.fault == last.fault.replace("seed 3, step 1", "seed 1, step 2")
    panel = EvaluationEpisodes(1, transcript=Transcript())
    response = make_response([1], [1], pieces=["a"])
    for step in (lost, won, last):
        if step is won:
            panel.keep_response(0, response)
        panel.insert(0, step)
    panel.join()
    assert (panel.summary()["eval/success"], panel.summary()["eval/episodes"]) == (1 / 3, 3)
    assert panel.transcript.episodes == 1 and panel.full is False and not panel.wants(0)


def test_episodes_without_turns_end_a_run_in_which_nothing_else_happens(pool, monkeypatch):
    monkeypatch.setattr(faults, "PAUSE_SECONDS", 0.0)
    vec_env = pool(partial(Script, "u"), training_seeds(0, range(1)))
    with pytest.raises(EnvError, match="faults in a row"):
        play(*wrapped(vec_env))


def test_a_fault_in_a_call_cuts_the_turn_before_it(pool):
    cut, _ = play(*two_episodes(pool, "tuut", "t", given={2: "raise"}))
    assert (cut.response, cut.reward, cut.number) == ("a0", 3.0, 1)
    assert cut.truncated and not cut.terminated and "lost" in cut.fault
    assert cut.first.text == "call 0"


def test_reward_before_the_first_turn_is_kept_when_that_turn_fails(pool):
    cut, _ = play(*two_episodes(pool, "uutt", "t", given={2: "raise"}))
    # the two untrained calls paid 1 and 2; the turn that failed pays nothing
    assert (cut.reward, cut.truncated) == (3.0, True) and "lost" in cut.fault


class Limited(Script):
    """Its last call reaches a time limit, and shows another request."""

    def step(self, response):
        text, reward, end, _, info = super().step(response)
        return text, reward, False, end, info

    def _asked(self):
        text, info = super()._asked()
        kind = (self.script + "u")[self.k]  # the final request is untrained
        return text, info | {"sampling": Sampling(extra={"top_p": 0.5} if kind == "u" else {})}


@pytest.mark.parametrize(
    ("env", "scripts", "given", "request_of"),
    # A fault or a time limit in an untrained call, or a time limit whose final request is
    # untrained: the episode ends at the request that its last turn answered.
    [
        (Script, ("tuut", "t"), {2: "raise"}, ["call 0"]),
        (Script, ("utuut", "t"), {3: "raise"}, ["call 1"]),
        (Script, ("ttut", "t"), {2: "raise"}, ["call 1", "call 1"]),
        (Limited, ("tuu", "tu"), {}, ["call 0", "call 0"]),
        (Limited, ("tt", "t"), {}, ["call 1", "call 1", "call 0"]),
    ],
)
def test_the_critic_is_asked_of_the_policys_own_requests(pool, env, scripts, given, request_of):
    envs, engine, first = wrapped(pool(partial(env, *scripts), [[1, 2]]), given)
    steps = play(envs, engine, first)
    shown = [step.observation for step in steps if not step.terminated]
    assert [request.text for request in shown] == request_of
    assert all(request.sampling.trained for request in shown)


def test_a_fault_before_the_first_turn_begins_the_next_episode(pool):
    envs, engine, first = two_episodes(pool, "ut", "t", given={0: "raise"})
    [turn] = play(envs, engine, first)
    assert engine.prompts == ["call 0", "call 0"]
    assert turn.reward == 1.0 and turn.episode == 1


def test_a_worker_that_dies_has_its_calls_played_again(pool):
    envs, engine, first = two_episodes(pool, "tuut", "t", workers=1)
    engine.submit(0, render(chat_of(first)), (0,))
    for i, response in engine.step():
        envs.send(i, response.text)
    assert envs.poll() == [] and len(engine.asked) == 1  # the untrained call waits for its answer
    [worker] = envs.executor.workers
    worker.process.kill()
    worker.process.join()
    assert envs.poll(wait=False) == []  # it is noticed while nobody waits for an answer
    assert not engine.step()  # the engine answers the call, and no sample comes
    while not (came := envs.poll()):
        assert not engine.step()
    [(_, turn)] = came
    last, end = play(envs, engine, turn.observation)
    assert [step.reward for step in (turn, last, end)] == [7.0, 8.0, 1.0]


def test_a_saved_state_resumes_after_a_turn_with_untrained_calls(pool):
    envs, engine, first = two_episodes(pool, "tut", "t")
    [step] = play(envs, engine, first, turns=1)
    assert step.reward == 3.0
    again = pool(partial(Script, "tut", "t"), [[1, 2]])
    [(first, steps)] = again.resume(envs.state_dict())
    assert first.text == "call 0" and [step.reward for step in steps] == [1.0, 2.0]
    envs, engine = with_untrained_calls("untrained", again, Answers({}), render, 0)
    assert play(envs, engine, steps[-1].observation)[0].reward == 4.0


@pytest.mark.parametrize(("script", "number"), [("ttut", 2), ("tuut", 1), ("tut", 1)])
def test_a_turn_with_calls_is_cut_where_it_cannot_be_played_again(pool, script, number, tmp_path):
    vec_env = pool(partial(Elsewhere, tmp_path, script, "t"), [[1, 2]], workers=1)
    envs, engine, now = wrapped(vec_env)
    calls = script.rindex("u")  # is under way when the worker dies
    engine.submit(0, render(chat_of(now)), (0,))
    for _ in range(calls):
        for i, response in engine.step():
            envs.send(i, response.text)
        if came := envs.poll():
            engine.submit(0, render(chat_of(came[0][1].observation)), (0,))
        assert len(engine.asked) == 1
    (tmp_path / "played").touch()
    [worker] = envs.executor.workers
    worker.process.kill()
    worker.process.join()
    assert envs.poll(wait=False) == []
    assert not engine.step()  # the response to the call under way
    while not (came := envs.poll()):
        pass
    [(_, cut)] = came
    assert isinstance(cut, Step) and cut.truncated and "lost" in cut.fault
    # the turn that waits for its end, with what it was paid: all calls but the one under way
    assert (cut.response, cut.number) == (f"a{number - 1}", number)
    assert cut.reward == sum(2.0**k for k in range(number - 1, calls))
