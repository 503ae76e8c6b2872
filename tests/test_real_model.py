"""A real language model, SmolLM2-135M-Instruct, where `python -m models.fetch smollm2` was run."""

import json

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import main
import memory
from arguments import get_args
from common.cache import cached
from envs.games.toy import Toy
from envs.text_env import Observation, act
from memory.render import Renderer
from ppo.model.pretrained import load_lm

FOLDER = cached("smollm2")
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="no model: python -m models.fetch smollm2 fetches it (93 MB)"
)
FLAGS = """--env-name toy --model smollm2 --n-env 2 --e-len 1 --minibatch 2 --num-updates 1
--w-epoch 0 --eval-interval 0 --prompt-limit 512 --response-limit 6 --critic-layers 1 --lr 1e-5
--critic-lr 1e-4 --run-dir"""


def test_it_makes_an_update_with_the_log_probs_of_transformers(tmp_path):
    run = tmp_path / "run"
    assert main.main(get_args([*FLAGS.split(), str(run)])) == 0
    [metrics] = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert metrics["ppo/ratio_first_minibatch"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["engine/logp_gap_mean"] < 1e-4 and metrics["ppo/skipped_steps"] == 0
    # transformers' own forward of the model, which is unchanged when the batch is scored
    lm = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    turns = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    for turn in turns:
        prompt = tokenizer(turn["prompt"], add_special_tokens=False)["input_ids"]
        response = tokenizer.convert_tokens_to_ids(tokenizer.tokenize("".join(turn["tokens"])))
        if len(response) != len(turn["tokens"]):
            continue  # its text would be other tokens
        with torch.no_grad():
            logps = lm(torch.tensor([prompt + response])).logits[0].log_softmax(-1)
        for k, (token, logp) in enumerate(zip(response, turn["logps"], strict=True)):
            assert logps[len(prompt) + k - 1, token].item() == pytest.approx(logp, abs=1e-3)
    trained = AutoModelForCausalLM.from_pretrained(run / "model", dtype=torch.float32)
    pairs = zip(trained.parameters(), lm.parameters(), strict=True)
    assert 0 < max((p - q).abs().max().item() for p, q in pairs) < 1e-3


def test_a_response_ends_as_the_chat_template_ends_a_message():
    tokenizer, config = AutoTokenizer.from_pretrained(FOLDER), AutoConfig.from_pretrained(FOLDER)
    assert tokenizer.eos_token == tokenizer.pad_token == "<|im_end|>"
    assert config.eos_token_id == tokenizer.eos_token_id


@pytest.fixture(scope="module")
def tokenizer():
    return load_lm(str(FOLDER), "cpu")[1]


@pytest.mark.parametrize("name", ["window", "action", "periodic", "full"])
def test_its_template_shows_what_each_memory_keeps(name, tokenizer):
    env = Toy()
    text, info = env.reset(seed=0)
    kept = memory.make(name, 0 if name == "full" else 2)
    kept.reset(Observation(text, info["kept"], info["system"], info["instruction"]))
    for _ in range(3):
        kept.update(act(env, "ACTION: red"))
    prompt = tokenizer.decode(Renderer(tokenizer, 4096)(kept.messages()).ids)
    assert prompt.startswith("<|im_start|>system\n") and info["system"].strip() in prompt
    assert prompt.endswith("<|im_start|>assistant\n")
    assert "ACTION: red" in prompt or name == "action" and "red" in prompt
