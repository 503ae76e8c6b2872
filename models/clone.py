"""Clones a scripted player: demonstrations, a tokenizer, a model with random weights, training.

`models.make` is the command line.
"""

import importlib

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

from envs.text_env import act, begin
from memory.render import Renderer
from memory.window import WindowMemory
from models.players import PLAYERS
from ppo.model.decoder import response_logps
from storage.minibatch import Sample, micro_batches

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


def demonstrations(player, episodes: int, seed: int, longest_memory: int = 0, shortest: int = 0):
    """Return (messages, response) of every turn that the player plays.

    The memory's length cycles from shortest to longest_memory. If prompts always showed the last
    turn, a clone would learn to rely on it and fail in the first turn.
    """
    turns = []
    for episode in range(episodes):
        observation = begin(player.env, seed * 100_003 + episode)
        memory = WindowMemory(shortest + episode % (longest_memory - shortest + 1))
        memory.reset(observation)
        player.memory_length = memory.length
        player.start()
        done = False
        while not done and (responses := player.respond(observation.text)) is not None:
            target, executed = responses
            turns.append((memory.messages(), target))
            step = act(player.env, executed)
            observation, done = step.observation, step.done
            memory.update(step)
    return turns


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


def clone(lm, prompts, responses, steps: int, batch: int, lr: float, seed: int) -> None:
    """Maximise the likelihood of the responses with AdamW."""
    optimizer = torch.optim.AdamW(lm.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.01)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / 30, total_iters=30)
    rng = np.random.default_rng(seed)
    samples = [Sample(*pair) for pair in zip(prompts, responses, strict=True)]
    for step in range(steps):
        rows = rng.choice(len(samples), batch, replace=False).tolist()
        n_tokens = sum(len(samples[row].response) for row in rows)
        total = 0.0
        for part in micro_batches(samples, [[row] for row in rows], token_budget=8192):
            logps = response_logps(lm, part)
            loss = -logps.sum() / n_tokens
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(lm.parameters(), 1.0)
        optimizer.step()
        cosine.step() if step >= 30 else warm_up.step()
        optimizer.zero_grad()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1}/{steps}: loss per token {total:.4f}", flush=True)


def play_tasks(players, tasks: dict, seed: int) -> list:
    """Return the demonstrations of all tasks. players: the module of a player"""
    turns = []
    for task, options in tasks.items():
        options = dict(options)
        episodes = options.pop("episodes")
        player = players.Player(task, np.random.default_rng(seed), **options)
        shortest = getattr(players, "SHORTEST_MEMORY", 0)
        task_turns = demonstrations(player, episodes, seed, players.LONGEST_MEMORY, shortest)
        print(f"{task}: {len(task_turns)} turns in {episodes} episodes", flush=True)
        turns += task_turns
    return turns


def make_model(args) -> None:
    """Play, clone, and save the model. args: the flags of `models.make`

    A second lesson has a third of the steps and half the learning rate.
    """
    torch.manual_seed(args.seed)
    players = importlib.import_module(PLAYERS[args.family])
    lessons = [
        play_tasks(players, tasks, args.seed + 1)
        for tasks in getattr(players, "LESSONS", [players.TASKS])
    ]
    texts = [m["content"] for messages, _ in lessons[0] for m in messages]
    texts += [response for _, response in lessons[0]]
    tokenizer = train_tokenizer(texts, TURNS + players.PASSAGES, args.vocab_size)
    lm = build(tokenizer, args.hidden, args.layers)
    tokenizer.save_pretrained(args.out)
    lm.config.save_pretrained(args.out)
    tokenizer = AutoTokenizer.from_pretrained(args.out)  # what users load; it may differ
    render = Renderer(tokenizer, 4096)
    for n, turns in enumerate(lessons):
        steps, lr = (args.steps // 3, args.lr / 2) if n else (args.steps, args.lr)
        prompts = [render(messages).ids for messages, _ in turns]
        responses = [
            tokenizer(r, add_special_tokens=False).input_ids + [tokenizer.eos_token_id]
            for _, r in turns
        ]
        lengths = [np.mean([len(ids) for ids in lists]) for lists in (prompts, responses)]
        print(
            f"vocabulary {len(tokenizer)}, prompt {lengths[0]:.0f} tokens, "
            f"response {lengths[1]:.0f}"
        )
        clone(lm, prompts, responses, steps, args.batch, lr, args.seed)
    lm.to(torch.bfloat16).save_pretrained(args.out)
    print(f"{sum(p.numel() for p in lm.parameters()) / 1e6:.3f} M parameters in {args.out}")
