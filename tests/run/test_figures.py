"""The figures of a batch by hand; values are those of `made_turns.Stub`."""

from dataclasses import replace

import pytest
from conftest import make_collection, make_prompt
from made_turns import answer, play, scored

from envs.checked import TAKEN, checked_act, checked_begin
from envs.games.toy import Toy
from ppo.evaluation import EvaluationEpisodes
from run.figures import batch_figures
from storage.episodes import means


def test_figures_of_a_batch_by_hand():
    rollouts = make_collection(2, 1)
    # the engine has -.07 and -.10 where the trainer has -.05 and -.06, then -.08 as the trainer
    first = answer([1, 2], [5, 6], [-0.07, -0.10], truncated=True)
    play(rollouts, 0, first, reward=0.5, valid=False)
    play(rollouts, 0, answer([1, 2, 3], [8], [-0.08], overflow=True), reward=1.0)
    rollouts.finish(0, make_prompt([4]))
    metrics = batch_figures(scored(rollouts))
    assert metrics["rollout/valid_action"] == 0.5
    assert metrics["rollout/reward"] == 0.75
    assert metrics["rollout/response_tokens"] == 1.5
    assert metrics["rollout/prompt_tokens"] == 2.5
    assert metrics["rollout/truncated_responses"] == 0.5
    assert metrics["rollout/prompt_overflow"] == 0.5
    # gaps .02, .04, 0
    assert metrics["engine/logp_gap_mean"] == pytest.approx(0.02)
    # 99 % of the way from the first to the last of 3 sorted gaps: place 1.98, .02 + .98 * .02
    assert metrics["engine/logp_gap_p99"] == pytest.approx(0.0396)
    # k1 over tokens 5, 6, 8: -(.025 + .03 + .04) / 3
    assert metrics["kl/ref"] == pytest.approx(-0.095 / 3)


def test_an_environments_own_metrics_replace_none_of_ours():
    class Boasts(Toy):
        def episode_metrics(self):
            return {"success": 0.75, "reward": 5.0, "mine": 1.0}

    env = Boasts()
    checked_begin(env, 0)
    step = checked_act(env, "ACTION: wave")
    while not step.done:
        step = checked_act(env, "ACTION: wave")
    assert step.metrics == {"own_success": 0.75, "own_reward": 5.0, "mine": 1.0}
    ours = {name.removeprefix("rollout/") for name in batch_figures(scored())}
    assert {name for name in ours if "/" not in name} <= TAKEN
    evaluation = EvaluationEpisodes(1, all_seeds=range(1))
    evaluation.join()
    evaluation.valid = [True]
    assert {name.removeprefix("eval/") for name in evaluation.summary()} <= TAKEN


def test_a_thought_is_cut_by_the_limit_alone():
    for text, truncated, share in (
        ("<think>red, so", True, 1.0),
        ("<think>I give up", False, 0.0),  # the model's own end
        ("<think>red</think>go", True, 0.0),
    ):
        rollouts = make_collection(1, 1)
        play(rollouts, 0, replace(answer([1], [5, 6], truncated=truncated), text=text))
        rollouts.finish(0, make_prompt([4]))
        assert batch_figures(scored(rollouts))["rollout/cut_thoughts"] == share, text


KEYS = """rollout/success rollout/return rollout/episode_len rollout/valid_action
rollout/response_tokens rollout/truncated_responses rollout/prompt_overflow kl/ref kl/ref_think
kl/ref_action engine/logp_gap_mean engine/logp_gap_p99"""


def test_the_keys_that_tools_rely_on():
    assert set(KEYS.split()) <= batch_figures(scored()).keys()


# the tokens of a response, where the ACTION marker begins in it, ids before it, ids from it on
SPLITS = [
    # "THINK: a\n" has 9 characters: the marker begins with token 2; tokens 5 6 | 7 8 9
    (["THINK", ": a\n", "ACT", "ION: red", "<end>"], 9, [5, 6], [7, 8, 9]),
    # it begins inside of token 1
    (["THINK", ": a\nACT", "ION", ": red", "<end>"], 9, [5], [6, 7, 8, 9]),
    # nothing was thought
    (["ACT", "ION", ":", " red", "<end>"], 0, [], [5, 6, 7, 8, 9]),
    # no marker: action_at is the length of the text, in which the end token has no letters
    (["THINK", ": ", "a", "b", "<end>"], 9, [5, 6, 7, 8, 9], []),
]


@pytest.mark.parametrize(("pieces", "action_at", "think", "action"), SPLITS)
def test_kl_before_and_after_the_action_marker(pieces, action_at, think, action):
    ids = [5, 6, 7, 8, 9]
    text = "".join(pieces[:-1])  # special tokens are no part of the text
    response = replace(answer([1], ids, pieces=pieces), text=text)
    rollouts = make_collection(1, 1)
    play(rollouts, 0, response, action_at=action_at)
    rollouts.finish(0, make_prompt([4]))
    metrics = batch_figures(scored(rollouts))
    for name, part in (("kl/ref_think", think), ("kl/ref_action", action)):
        # k1 = -i / 200; None where there is no such token
        expected = pytest.approx(-sum(part) / len(part) / 200) if part else None
        assert metrics[name] == expected, name


def test_kl_of_notes_and_summaries_is_apart():
    rollouts = make_collection(2, 1)
    noted = ["a", "NOTES:", " n", "ACTION:", " b", "<end>"]  # at characters 1 and 9
    response = replace(answer([1], [5, 6, 7, 8, 9, 1], pieces=noted), text="aNOTES: nACTION: b")
    play(rollouts, 0, response, action_at=9)
    summed = ["a", "SUMMARY:", "<end>"]
    response = replace(answer([1], [4, 3, 2], pieces=summed), text="aSUMMARY:")
    play(rollouts, 0, response, action_at=1)
    rollouts.finish(0, make_prompt([4]))
    metrics = batch_figures(scored(rollouts))
    parts = {"think": [5, 4], "notes": [6, 7], "action": [8, 9, 1], "summary": [3, 2]}
    for name, part in parts.items():  # k1 = -i / 200
        expected = pytest.approx(-sum(part) / len(part) / 200)
        assert metrics[f"kl/ref_{name}"] == expected, name
    others = batch_figures(scored()).keys()
    assert {"kl/ref_think", "kl/ref_action"} == {n for n in others if n.startswith("kl/ref_")} - {
        "kl/ref_k3"
    }


def test_success_is_that_of_finished_episodes(monkeypatch):
    monkeypatch.setattr("run.figures.FEWEST", 3)
    rollouts = make_collection(4, 2)
    assert means(rollouts.episodes.finished)["success"] is None  # none has ended

    def turn(n, **step):
        return play(rollouts, n, answer([1], [2]), **step)

    # environment 0: two turns to success, then two of an episode that goes on (and is not counted)
    turn(0, reward=-0.1)
    turn(0, reward=1.0, terminated=True, success=True, metrics={"right": 0.5})
    turn(0, reward=7.0)
    turn(0, reward=7.0)
    # environment 1: fails by its time limit after one turn, after three once more; a positive
    # return is no success
    turn(1, reward=0.5, truncated=True)
    turn(1, reward=0.2)
    turn(1, reward=0.2)
    turn(1, reward=0.2, terminated=True)
    for n in range(2):
        rollouts.finish(n, make_prompt([1]))
    metrics = batch_figures(scored(rollouts))
    assert metrics["rollout/episodes"] == 3
    assert metrics["rollout/success"] == pytest.approx(1 / 3)
    assert metrics["rollout/return"] == pytest.approx((0.9 + 0.5 + 0.6) / 3)
    assert metrics["rollout/episode_len"] == pytest.approx((2 + 1 + 3) / 3)
    assert metrics["rollout/right"] == 0.5  # of the one episode that has this figure


@pytest.mark.parametrize(("ended", "success"), [(0, None), (19, None), (20, 1.0), (21, 1.0)])
def test_a_mean_over_few_episodes_is_not_shown(ended, success):
    """Of 25 environments those end first that succeed at once; the others are still under way."""
    rollouts = make_collection(1, 25)
    for n in range(25):
        won = dict(reward=1.0, terminated=True, success=True, metrics={"right": 1.0})
        play(rollouts, n, answer([1], [2]), **(won if n < ended else {}))
        rollouts.finish(n, make_prompt([1]))
    metrics = batch_figures(scored(rollouts))
    assert metrics["rollout/episodes"] == ended
    length = success and 1
    assert [metrics[f"rollout/{name}"] for name in ("success", "return", "episode_len")] == [
        success, success, length]  # fmt: skip
    assert metrics.get("rollout/right") == success
    assert metrics["rollout/reward"] == ended / 25  # per turn, whatever has ended


def test_an_episode_goes_on_from_batch_to_batch(monkeypatch):
    monkeypatch.setattr("run.figures.FEWEST", 1)
    rollouts = make_collection(1, 1)
    for reward, terminated in ((0.5, False), (0.25, True)):
        play(rollouts, 0, answer([1], [2]), reward=reward, terminated=terminated, success=True)
        rollouts.finish(0, make_prompt([1]))
        batch = scored(rollouts)
        metrics = batch_figures(batch)
        rollouts.after_update(batch)
    assert metrics["rollout/return"] == 0.75 and metrics["rollout/episode_len"] == 2


def whole_batch(rollouts, n_env: int) -> dict:
    """The figures of a batch of one whole episode each: every second environment wins in 2 turns,
    the others fail in 10."""
    for n in range(n_env):
        turns = 10 if n % 2 else 2
        for t in range(turns):
            won = t == 1 and turns == 2
            step = dict(reward=float(won), success=won, terminated=t == turns - 1)
            play(rollouts, n, answer([1], [2]), **step)
        rollouts.finish(n, make_prompt([1]))
    batch = scored(rollouts)
    rollouts.after_update(batch)
    return batch_figures(batch)


def test_a_batch_of_many_whole_episodes_is_not_cut():
    figures = whole_batch(make_collection(2, 160, group_size=8, critic=False), 160)
    # The 80 that fail end last: among the last 100 only 20 succeed.
    for group in ("rollout", "batch"):
        names = ("success", "return", "episode_len", "episodes")
        assert [figures[f"{group}/{name}"] for name in names] == [0.5, 0.5, 6.0, 160]


def test_the_window_holds_whole_batches_of_whole_episodes():
    rollouts = make_collection(2, 80, group_size=8, critic=False)
    counts = []
    for _ in range(3):
        figures = whole_batch(rollouts, 80)
        # Of the 80 before, the last 20 to end are failures: 40 / 100 would be logged.
        assert figures["rollout/success"] == figures["batch/success"] == 0.5
        counts.append(figures["rollout/episodes"])
        assert figures["batch/episodes"] == 80
    assert counts == [80, 160, 160]  # without the oldest of three batches 100 are left


def test_the_window_of_fixed_turns_is_the_last_hundred_to_end():
    rollouts = make_collection(1, 61)
    for success in (False, True):  # environment 60 goes on: what ended is no batch of its own
        for n in range(61):
            ends = dict(terminated=True, success=success, reward=float(success))
            play(rollouts, n, answer([1], [2]), **(ends if n < 60 else {}))
            rollouts.finish(n, make_prompt([1]))
        batch = scored(rollouts)
        figures = batch_figures(batch)
        rollouts.after_update(batch)
    # 60 that succeed, and before them 40 that do not
    assert figures["rollout/success"] == 0.6 and figures["batch/success"] == 1.0
    assert (figures["rollout/episodes"], figures["batch/episodes"]) == (100, 60)


def test_the_share_of_first_episodes_under_way():
    rollouts = make_collection(1, 4)
    shares = []
    for ended in (1, 3, 0):  # environments whose episode ends in this batch
        for n in range(4):
            number = sum(n < before for before in (1, 3)[: len(shares)])
            play(rollouts, n, answer([1], [2]), terminated=n < ended, episode=number)
            rollouts.finish(n, make_prompt([1]))
        batch = scored(rollouts)
        shares.append(batch_figures(batch)["rollout/first_under_way"])
        rollouts.after_update(batch)
    assert shares == [0.75, 0.25, 0.25]  # of four environments 3, 1 and 1 have ended none
    # however few have ended in the batch, its own mean exists
    assert batch_figures(batch)["batch/success"] is None
