"""The embedded models: a tokenizer, a model with random weights, and a scripted player to clone.

`models.make` is the command line.
"""

import glob
import importlib
import tempfile
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
)

from memory.spelled import SafeRenderer
from models.demonstrations import encoded, play_tasks
from models.imitation import Imitation
from models.players import PLAYERS
from ppo.model.actor import ActorOnly
from run.files import recover, written_aside

# Calls have the format of Hermes and Qwen; the system message lists the tools.
CHAT_TEMPLATE = """\
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\\n' + m.content }}
    {%- if tools and loop.first %}
        {{- '\\n\\n# Tools' }}
        {%- for tool in tools %}{{- '\\n' + tool.function | tojson }}{%- endfor %}
    {%- endif %}
    {%- for call in m.tool_calls or [] %}
        {{- '\\n<tool_call>\\n' + call.function | tojson + '\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TURNS = [*(f"<|im_start|>{role}\n" for role in ("system", "user", "assistant")), "<|im_end|>\n"]


def train_tokenizer(texts: list[str], passages: list[str], vocab_size: int):
    """Train a byte-pair tokenizer on `texts` in which each of `passages` is one token."""
    for passage in passages:
        texts = [text.replace(passage, "") for text in texts]
    tokenizer = Tokenizer(models.BPE())
    # AutoTokenizer uses this one for every Qwen2 model, even if tokenizer.json has another.
    tokenizer.pre_tokenizer = Qwen2Tokenizer().backend_tokenizer.pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in passages])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
    )


def build(tokenizer, hidden: int, layers: int) -> Qwen2ForCausalLM:
    """Return a model with random weights."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,  # vLLM's CPU kernels need heads of at least 32
        num_key_value_heads=2,
        max_position_embeddings=32768,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},  # prompts are short
        tie_word_embeddings=True,
        initializer_range=0.1,  # with the usual .02, copying is learnt five times later
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config)


def as_loaded(tokenizer, config):
    """Return the tokenizer that users load, which may differ from the one that was trained.

    RunError: no temporary file can be written
    """
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "tokenizer"
        with written_aside(folder) as aside:
            tokenizer.save_pretrained(aside)
            config.save_pretrained(aside)
        return AutoTokenizer.from_pretrained(folder)


def make_model(args) -> None:
    """Play, clone, and save the model. args: the flags of `models.make`

    A second lesson has a third of the steps and half the learning rate. RunError: the model cannot
    be written; what was in --out before is unchanged
    """
    recover(args.out.parent, glob.escape(args.out.name))
    torch.manual_seed(args.seed)
    players = importlib.import_module(PLAYERS[args.family])
    lessons = [
        play_tasks(players, tasks, args.seed + 1)
        for tasks in getattr(players, "LESSONS", [players.TASKS])
    ]
    texts = [m["content"] for messages, _ in lessons[0] for m in messages]
    texts += [response for _, response in lessons[0]]
    trained = train_tokenizer(texts, TURNS + players.PASSAGES, args.vocab_size)
    lm = build(trained, args.hidden, args.layers)
    tokenizer = as_loaded(trained, lm.config)
    render = SafeRenderer(tokenizer, 4096)
    for n, turns in enumerate(lessons):
        steps, lr = (args.steps // 3, args.lr / 2) if n else (args.steps, args.lr)
        samples = encoded(turns, render, tokenizer)
        prompt = np.mean([len(sample.prompt) for sample in samples])
        response = np.mean([len(sample.response) for sample in samples])
        print(f"vocabulary {len(tokenizer)}, prompt {prompt:.0f} tokens, response {response:.0f}")
        lesson = Imitation(ActorOnly(lm), samples, steps, args.batch, lr, args.seed)
        while lesson.step < steps:
            loss = lesson.take_step(token_budget=8192)
            if lesson.step % 50 == 0:
                print(f"step {lesson.step}/{steps}: loss per token {loss:.4f}", flush=True)
    with written_aside(args.out) as aside:
        trained.save_pretrained(aside)
        lm.to(torch.bfloat16).save_pretrained(aside)
    print(f"{sum(p.numel() for p in lm.parameters()) / 1e6:.3f} M parameters in {args.out}")
