"""The player of textarena's FrozenLake: it sees right and walks badly; and its clone's tokens."""

from importlib import util

import numpy as np
import pytest
from transformers import AutoTokenizer

from arguments import get_args
from envs.text_env import act, begin
from memory.render import Renderer
from models.demonstrations import demonstrations
from recipes import MODELS

if not util.find_spec("textarena"):
    pytest.skip("textarena is not installed", allow_module_level=True)

from models.players.frozen_lake import PASSAGES, TASK, Player, read, safe_way

BOARD = """You moved right to position (1, 1).

Current Board:

+-----+-----+-----+-----+
|     |     |     |  H  |
+-----+-----+-----+-----+
|     |  P  |  H  |     |
+-----+-----+-----+-----+
|     |     |     |     |
+-----+-----+-----+-----+
|  H  |     |     |  G  |
+-----+-----+-----+-----+

Available Actions: [up], [down], [left], [right], [w], [a], [s], [d]"""


def play(episodes, **given):
    """(text, learnt, executed) of every turn, and the last step of every episode."""
    player, turns, ends = Player(TASK, np.random.default_rng(0), **given), [], []
    for seed in range(episodes):
        text = begin(player.env, seed).text
        player.start()
        done = False
        while not done:
            learnt, executed = player.respond(text)
            turns.append((text, learnt, executed))
            step = act(player.env, executed)
            assert step.valid
            text, done = step.observation.text, step.done
        ends.append(step)
    return turns, ends


def test_its_reading_thought_and_move():
    lake, place = read(BOARD)
    assert place == (1, 1) and len(lake) == 16
    holes = {cell for cell, what in lake.items() if what == "hole"}
    assert holes == {(0, 3), (1, 2), (3, 0)} and lake[3, 3] == "goal"
    # right is a hole; down leads to the goal in four moves, and no other way is as short
    assert safe_way(lake, place) == "down"
    learnt, executed = Player(TASK, np.random.default_rng(0)).respond(BOARD)
    response = "THINK: right: hole. down: ice. left: ice. up: ice.\nACTION: down"
    assert learnt == executed == response


def test_with_care_it_wins_on_a_shortest_way():
    turns, ends = play(30)
    assert all(step.success and step.reward == 1 for step in ends)
    # from corner to corner of 4 x 4 cells there are six moves, or more around holes
    assert 6 * 30 <= len(turns) < 7 * 30


def test_without_care_it_goes_right_or_down_into_holes():
    turns, ends = play(100, care=0.0)
    ways = [learnt.split()[-1] for _, learnt, _ in turns]
    assert {*ways} == {"right", "down"}
    assert not any(
        f"{way}: wall." in learnt for way, (_, learnt, _) in zip(ways, turns, strict=True)
    )
    # simulated with 1,000 episodes: .27 with noise .1; +- 5 standard deviations of .045
    assert 0.05 < np.mean([step.success for step in ends]) < 0.5


def test_strays_are_moves_onto_ice_and_are_not_learnt():
    turns, _ = play(20, stray=1.0)
    assert any(learnt != executed for _, learnt, executed in turns)
    for _, learnt, executed in turns:
        reasoning, way = learnt.split("\n")[0], executed.split()[-1]
        assert executed.startswith(reasoning)
        assert f"{way}: ice." in reasoning or ": ice." not in reasoning


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(MODELS / "tiny-frozen-lake")


def test_a_prompt_and_a_response_are_short(tokenizer):
    """A text that changed in the library would be hundreds of tokens."""
    render = Renderer(tokenizer, 1024)
    player = Player(TASK, np.random.default_rng(0), stray=0.5)
    for messages, response in demonstrations(player, 5, seed=1, longest_memory=1):
        ids = render(messages).ids
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert len(ids) < 110 and tokenizer.decode(ids) == text
        assert len(tokenizer(response).input_ids) <= 12


def test_every_cell_and_every_way_is_one_token(tokenizer):
    assert all(len(tokenizer(text).input_ids) == 1 for text in PASSAGES)


def test_it_is_the_embedded_model_of_textarena():
    args = get_args(["--env-name", TASK])
    assert args.model == str(MODELS / "tiny-frozen-lake") and args.prompt_limit == 4096
    assert sum(file.stat().st_size for file in (MODELS / "tiny-frozen-lake").iterdir()) < 2_000_000
