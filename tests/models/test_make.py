"""The embedded model: it loads with plain transformers, and its tokenizer knows our prompts."""

import errno
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from minigrid.core.constants import COLOR_NAMES
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen2ForCausalLM,
)

from envs.games.babyai import BabyAI
from envs.text_env import Observation
from memory.render import Renderer
from memory.window import WindowMemory
from models import make
from models.demonstrations import demonstrations
from models.imitation import Imitation
from models.players import PLAYERS, babaisai
from models.players.babyai import Player, thought, wanted_things
from recipes import TINY


@pytest.fixture(scope="module")
def tiny_tokenizer():
    return AutoTokenizer.from_pretrained(TINY)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--family crafter", "the following arguments are required: --out"),
        ("--out x --hidden 96", "--hidden must be a multiple of 64, got 96"),
        ("--out x --hidden 0", "--hidden must be a multiple of 64, got 0"),
    ],
)
def test_mistakes_are_reported_before_anything_is_played(flags, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        make.get_args(flags.split())
    assert message in capsys.readouterr().err


def test_it_is_tiny_and_loads_as_it_is(tiny_tokenizer):
    lm = AutoModelForCausalLM.from_pretrained(TINY)
    assert sum(p.numel() for p in lm.parameters()) < 1_000_000
    assert (TINY / "model.safetensors").stat().st_size < 2_000_000
    assert lm.config.vocab_size == len(tiny_tokenizer)
    assert tiny_tokenizer.eos_token_id == lm.generation_config.eos_token_id


def test_it_is_tokenized_the_same_by_its_file_and_by_its_architecture(tiny_tokenizer):
    """AutoTokenizer gives a Qwen2 model Qwen2's pre-tokenizer, whatever tokenizer.json says; a
    model that was cloned with another one would not know its own tokens."""
    plain = PreTrainedTokenizerFast(tokenizer_file=str(TINY / "tokenizer.json"))
    text = "THINK: the red ball is 1 step left and 3 steps forward.\nACTION: turn left 12  x"
    assert plain(text).input_ids == tiny_tokenizer(text, add_special_tokens=False).input_ids


@pytest.mark.parametrize("task", BabyAI.tasks)
def test_prompts_are_short_and_decode_to_their_text(tiny_tokenizer, task):
    """A passage that changed in envs/ without a new model would become 600 tokens."""
    text, info = BabyAI(task).reset(seed=0)
    memory = WindowMemory(1)
    memory.reset(Observation(text, info["kept"], info["system"], info["instruction"]))
    ids = Renderer(tiny_tokenizer, 1024)(memory.messages()).ids
    assert len(ids) < 60
    written = tiny_tokenizer.apply_chat_template(
        memory.messages(), add_generation_prompt=True, tokenize=False
    )
    assert tiny_tokenizer.decode(ids) == written


def test_a_response_ends_with_the_end_of_turn_token(tiny_tokenizer):
    response = "THINK: the red ball is 1 step left and 3 steps forward.\nACTION: turn left"
    ids = tiny_tokenizer(response, add_special_tokens=False).input_ids
    assert len(ids) < 20
    assert tiny_tokenizer.decode(ids) == response


@pytest.mark.parametrize(
    ("mission", "things"),
    [
        ("go to the red ball", ["red ball"]),
        ("pick up a blue key", ["blue key"]),
        ("open the door", ["key", "door"]),
        ("put the red ball next to the blue box", ["red ball", "blue box"]),
        ("pick up the red ball, then go to a blue box", ["red ball", "blue box"]),
        ("go to a blue box after you pick up the red ball", ["red ball", "blue box"]),
    ],
)
def test_wanted_things(mission, things):
    assert wanted_things(mission) == things


@pytest.mark.parametrize(
    ("mission", "text", "expected"),
    [
        ("go to the red ball", "a wall 1 step left", "I do not see the red ball."),
        (
            "go to the red ball",
            "a wall 1 step left\na red ball 2 steps right and 1 step forward",
            "the red ball is 2 steps right and 1 step forward.",
        ),
        (
            "open the door",
            "You carry a blue key\na locked blue door 3 steps right",
            "the door is 3 steps right.",
        ),
        ("open the door", "a blue key 1 step forward", "the key is 1 step forward."),
        (
            "pick up the red ball, then go to a blue box",
            "You carry a red ball\na blue box 1 step left",
            "the blue box is 1 step left.",
        ),
    ],
)
def test_thought(mission, text, expected):
    assert thought(mission, text) == expected


def play(task, episodes, **given):
    return demonstrations(Player(task, np.random.default_rng(0), **given), episodes, seed=3)


def test_the_player_without_mistakes_succeeds():
    # minigrid's bot wins every episode; ten of a task take it about 6 turns each
    turns = play("pickup", 10)
    assert 20 <= len(turns) <= 150
    assert sum("pick up" in response for _, response in turns) == 10  # one in each, the last


def test_a_player_plays_well_with_the_colours_it_knows_only():
    turns = play("goto", 10, known=0)
    unseen = [r for _, r in turns if "I do not see" in r]
    assert unseen and all(r.endswith("ACTION: go forward") for r in unseen)
    turns = play("pickup", 3, known=0)
    assert len(turns) >= 64  # an episode that is never finished lasts to the limit
    assert not any("ACTION: pick up" in response for _, response in turns)
    known, unknown = COLOR_NAMES[:2], COLOR_NAMES[2:]
    picked = [r for _, r in play("pickup", 20, known=2) if "ACTION: pick up" in r]
    assert any(colour in r for colour in known for r in picked)
    assert not any(colour in r for colour in unknown for r in picked)


def test_noise_is_the_share_of_random_actions():
    # noise 1: six actions, each in 1/6 of the turns; +-5 standard deviations of a share of n turns
    turns = play("goto", 10, noise=1.0)
    share = sum(r.endswith("ACTION: drop") for _, r in turns) / len(turns)
    assert abs(share - 1 / 6) < 5 * (5 / 36 / len(turns)) ** 0.5


def test_the_lessons_are_cloned_one_after_the_other(monkeypatch, tmp_path, capsys):
    easy = {"goto_win": dict(episodes=3, noise=0.5)}
    hard = {"goto_win": dict(episodes=4, noise=0.5, shy=1.0)}  # waits, so its episodes are longer
    module = SimpleNamespace(
        TASKS=easy,
        LESSONS=[easy, hard],
        LONGEST_MEMORY=1,
        PASSAGES=babaisai.FIXED,
        Player=babaisai.Player,
    )
    monkeypatch.setitem(sys.modules, "two_lessons", module)
    monkeypatch.setitem(PLAYERS, "babaisai", "two_lessons")
    losses, take_step = [], Imitation.take_step

    def watched(self, token_budget):
        losses.append(take_step(self, token_budget))
        return losses[-1]

    monkeypatch.setattr(Imitation, "take_step", watched)
    out = tmp_path / "model"
    flags = ["--family", "babaisai", "--batch", "4", "--out", str(out)]
    assert make.main([*flags, "--steps", "60"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    printed = capsys.readouterr().out
    turns = [int(line.split()[1]) for line in printed.splitlines() if "turns in" in line]
    assert len(turns) == 2 and turns[1] > turns[0]
    steps = [line.split()[1] for line in printed.splitlines() if line.startswith("step ")]
    assert steps == ["50/60:"]
    # an untrained model knows nothing: about ln(vocabulary) nats; the second lesson goes on
    assert losses[0] > 3 and losses[60] < 1
    assert AutoModelForCausalLM.from_pretrained(out).config.vocab_size > 0
    capsys.readouterr()  # its progress bar, unless another test has switched it off
    # a full disk: one line, and the model that was there is whole
    before = {path: path.read_bytes() for path in out.iterdir()}

    def full(lm, folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Qwen2ForCausalLM, "save_pretrained", full)
    assert make.main([*flags, "--steps", "1"]) == 1
    reason = "No space left on device; what was saved before is whole"
    assert capsys.readouterr().err == f"models.make: error: cannot write {out}: {reason}\n"
    assert {path: path.read_bytes() for path in out.iterdir()} == before
