"""The shop's player: without mistakes it buys the right items, and its mistakes are visible."""

from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from memory.render import Renderer
from models.demonstrations import demonstrations
from models.players.shop import TASKS, Player, response_with
from recipes import EMBEDDED_FAMILIES

MODEL = Path(EMBEDDED_FAMILIES["shop"]["model"])
FAULTS = {name: n for name, n in TASKS["shop"].items() if name != "episodes"}


def play(episodes, **given):
    """Return the responses of each episode, the last step's info and the turn's reward."""
    player, played = Player("shop", np.random.default_rng(0), **given), []
    for seed in range(episodes):
        text, _ = player.env.reset(seed=seed)
        player.start()
        responses, done = [], False
        while not done:
            responses.append(player.respond(text))
            text, reward, terminated, truncated, info = player.env.step(responses[-1][1])
            assert info["kept_response"] == responses[-1][1] and info["valid"]
            done = terminated or truncated
        played.append((responses, reward, info))
    return played


def test_without_mistakes_it_buys_the_right_things():
    played = play(50)
    assert all(reward == 1 and info["success"] for _, reward, info in played)
    # one thing takes a search, an addition and the check-out, two things take two more turns
    assert {len(responses) for responses, *_ in played} == {3, 5}


def test_it_puts_back_wrong_items():
    # with a time limit of 8 some episodes have too many random calls to come to an end
    played = play(50, stray=0.2)
    assert sum(info["success"] for *_, info in played) > 40
    assert any("I put back" in learnt for responses, *_ in played for learnt, _ in responses)


@pytest.mark.parametrize("fault", ["first", "dear", "more"])
def test_wrong_things_cost(fault):
    played = play(50, **{fault: 1.0}, keeps=1.0)
    wrong = [reward for _, reward, info in played if not info["success"]]
    assert len(wrong) > 10 and {-0.2, -0.1} >= set(wrong) - {0.0}
    assert min(wrong) < 0


def test_an_early_check_out_buys_one_item_only():
    played = play(50, early=1.0)
    assert {len(responses) for responses, *_ in played} == {3}
    assert 0 < sum(info["success"] for *_, info in played) < 50


def test_giving_up_makes_no_call():
    played = play(5, quits=1.0)
    assert all(len(responses) == 1 and not info["success"] for responses, _, info in played)
    assert response_with("That is all", None) == "That is all, but I give up."


def test_prompts_of_the_embedded_model_are_short():
    """A passage that changed in envs/ without a new model would be spelt out in 600 tokens."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    render = Renderer(tokenizer, 1024)
    turns = demonstrations(Player("shop", np.random.default_rng(0), **FAULTS), 20, 1, 8, 8)
    assert max(len(render(messages).ids) for messages, _ in turns) < 200
    assert max(len(tokenizer(response).input_ids) for _, response in turns) < 12


def test_the_embedded_model_is_tiny():
    assert sum(path.stat().st_size for path in MODEL.iterdir()) < 2_000_000
