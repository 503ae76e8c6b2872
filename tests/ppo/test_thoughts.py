"""How much a thought tells of its prompt, with numbers derived by hand."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from ppo.thoughts import FEWEST, Thoughts, information, scores, thought_information
from storage.batch import Scoring
from storage.collection import Turn
from storage.minibatch import Sample


def test_information_by_hand():
    # the right prompt makes a thought sure, and the others make it impossible: all log 4 nats
    assert information(torch.eye(4, dtype=torch.float64).log()) == pytest.approx(1.0)
    # every prompt makes it as probable: a template that ignores the state
    assert information(torch.full((4, 4), -3.0)) == pytest.approx(0.0)
    # 1/2 under its own prompt and 1/6 under the other: log (1/2) / (1/3) = log 1.5 of log 2
    two = torch.tensor([[1 / 2, 1 / 6], [1 / 6, 1 / 2]]).log()
    assert information(two) == pytest.approx(math.log(1.5) / math.log(2), abs=1e-6)


def turn(seed: int, number: int, ids=(5, 6, 7), pieces=("I see. ", "ACTION:", " go"), at=7) -> Turn:
    prompt = SimpleNamespace(ids=[seed, number])
    response = SimpleNamespace(
        ids=list(ids), pieces=list(pieces), text="".join(pieces), temperature=1.0, prompt=prompt
    )
    return Turn(response, SimpleNamespace(seed=seed, number=number, action_at=at))


def test_one_turn_of_each_of_the_first_episodes():
    thoughts = Thoughts(range(1, 100, 2))
    for seed in (3, 1, 5, 99):
        for number in (1, 2):
            thoughts.insert(turn(seed, number))
    thoughts.join(SimpleNamespace(gather=lambda found: found))
    # the first turn of the first episode, the second of the second; the third's last before turn 3
    assert [sample.prompt for sample in thoughts.samples()] == [[1, 1], [3, 2], [5, 2]]
    assert all(sample.response == [5] for sample in thoughts.samples())  # up to the action


def test_a_turn_without_a_thought_is_left_out():
    thoughts = Thoughts(range(1, 100, 2))
    thoughts.insert(turn(1, 1, at=0))
    assert thoughts.samples() == []
    assert thought_information(thoughts, None, Scoring()) == {"eval/thought_information": None}
    assert FEWEST > 1


def test_scores_cross_prompts_and_thoughts():
    # a token's log-prob is minus the sum of the prompt's ids: L_ij = -length_i x sum_j
    def model(micro):
        rows = [(row, mask) for row, mask in zip(micro.ids, micro.response_mask, strict=True)]
        known = [-row[: int(mask.int().argmax())].sum().float() for row, mask in rows]
        each = zip(known, micro.response_mask.sum(-1).tolist(), strict=True)
        return SimpleNamespace(logps=torch.cat([x.repeat(n) for x, n in each]))

    samples = [Sample([1], [9, 9]), Sample([2, 3], [9])]
    found = scores(samples, model, Scoring(token_budget=4))
    assert_close(found, torch.tensor([[-2.0, -10.0], [-1.0, -5.0]], dtype=torch.float64))
