"""The player of the agent that rewrites its history: what it knows, and what it forgets."""

import numpy as np
import pytest

pytest.importorskip("httpx")
pytest.importorskip("openai")

from examples.summarising_agent import SUM_UP
from models.players.summarising import FORGOTTEN, TASK, Player, bounds
from models.remembering import episode, remembering


def user(*texts: str) -> list[dict]:
    return [{"role": "user", "content": text} for text in texts]


def test_its_bounds_are_the_tightest_ones_of_its_prompt():
    told = user("The hidden number is above 12.", "The hidden number is below 70.")
    assert bounds(told) == (12, 70) and bounds([]) == (-1, 100)
    assert bounds(user("You know this: above 12, below 70\nGuess.", "The hidden number is above 9."
                       )) == (12, 70)  # fmt: skip
    # what the model itself says is not read
    assert bounds([{"role": "assistant", "content": "above 50"}]) == (-1, 100)


def played(seed: int, **given) -> list:
    player = Player(TASK, np.random.default_rng(0), **given)
    env, memory = remembering(player.env, "verbatim", 0)
    turns = list(episode(player, env, memory, seed))
    env.close()
    return turns


def test_with_its_summaries_it_guesses_between_the_bounds():
    turns = played(1)
    assert all(step.valid for *_, step in turns) and turns[-1][2].success
    summaries = [learnt for messages, learnt, _ in turns if messages[-1]["content"] == SUM_UP]
    assert all(text.startswith("above ") for text in summaries)


def test_it_begins_anew_when_it_forgets():
    turns = played(5, forgets=1.0)
    summed_up = [k for k, turn in enumerate(turns) if turn[0][-1]["content"] == SUM_UP]
    assert summed_up and all(turns[k][1] == FORGOTTEN for k in summed_up)
    assert all("above -1, below 100" in turns[k + 1][1] for k in summed_up if k + 1 < len(turns))
