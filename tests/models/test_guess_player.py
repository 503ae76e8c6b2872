"""The player of dialogue-guess: its thoughts are right, its guesses poor; and its clone."""

import re

import numpy as np
import pytest
from transformers import AutoTokenizer

from envs.text_env import begin
from memory.render import Renderer
from memory.window import WindowMemory
from models.demonstrations import demonstrations
from models.players.guess import HALVE, PASSAGES, TASKS, Player
from recipes import MODELS


def play(episodes, **given):
    """(above, below, learnt guess, executed guess) of every turn; info at each end."""
    player = Player("dialogue-guess", np.random.default_rng(0), **given)
    turns, ends = [], []
    for seed in range(episodes):
        text, _ = player.env.reset(seed=seed)
        player.start()
        done = False
        while not done:
            learnt, executed = player.respond(text)
            numbers = [int(n) for n in re.findall(r"\d+", learnt)]
            turns.append((*numbers, int(re.findall(r"\d+", executed)[-1])))
            text, _, terminated, truncated, info = player.env.step(executed)
            assert info["valid"]
            done = terminated or truncated
        ends.append(info)
    return turns, ends


def wins(ends):
    return sum(info["success"] for info in ends) / len(ends)


def test_it_knows_the_possible_numbers():
    turns, ends = play(50, counting=0.5, stray=0.5)
    assert all(above < guess < below for above, below, guess, _ in turns)
    assert all(info["metrics"] == {"wasted_guesses": 0.0} for info in ends)
    assert any(learnt != executed for *_, learnt, executed in turns)


def test_counting_alone_finds_the_first_seven():
    turns, ends = play(100, counting=1.0)
    assert all(guess == above + 1 for above, _, guess, _ in turns)
    assert max(guess for *_, guess in turns) == 7
    # 7 of 50 numbers: .14 +- 5 standard deviations of .035
    assert wins(ends) < 0.32


def test_without_counting_it_guesses_in_the_inner_third_and_wins():
    turns, ends = play(200)
    for above, below, guess, _ in turns:
        n = below - above - 1  # numbers that are possible
        assert above + n // 3 < guess < below - n // 3
        assert n > 2 or guess == above + 1
    # simulated with 1,500 dialogues: .998; -5 standard deviations of .003
    assert wins(ends) > 0.98


def test_counting_in_two_turns_of_three_is_mediocre():
    # simulated with 1,500 dialogues: .39 +- 5 standard deviations of .035
    assert 0.21 < wins(play(200, counting=0.65)[1]) < 0.57


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(MODELS / "tiny-guess")


def test_the_longest_prompt_is_short_and_decodes_to_its_text(tokenizer):
    given = TASKS["dialogue-guess"] | {"counting": 1.0}
    del given["episodes"]
    player = Player("dialogue-guess", np.random.default_rng(0), **given)
    turns = demonstrations(player, 9, seed=3, longest_memory=8)
    render = Renderer(tokenizer, 1024)
    prompts = [(render(messages).ids, messages) for messages, _ in turns]
    longest, messages = max(prompts, key=lambda prompt: len(prompt[0]))
    # system 3, opening 4, six turns of 14 and the assistant's marker
    assert len(longest) == 3 + 4 + 6 * 14 + 1
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert tokenizer.decode(longest) == text


def test_every_passage_and_number_is_one_token(tokenizer):
    assert all(len(tokenizer(text, add_special_tokens=False).input_ids) == 1 for text in PASSAGES)
    assert tokenizer(f"<think>above 9, below 51{HALVE}17?").input_ids == [
        tokenizer.convert_tokens_to_ids(token)
        for token in ("<think>above ", "9", ", below ", "51", HALVE, "17", "?")
    ]


def test_the_models_tokens_are_the_environments_texts():
    """A text that changed in envs/ would become many tokens of the model's tokenizer."""
    memory = WindowMemory(8)
    memory.reset(begin(Player("dialogue-guess", None).env, seed=0))
    left = "".join(message["content"] for message in memory.messages())
    for passage in PASSAGES:
        left = left.replace(passage, "")
    assert left == ""
