"""Makes the embedded model: a tiny Qwen2-architecture language model that plays BabyAI badly.

    python -m ppo.tiny_model --out models/tiny

A scripted expert (minigrid's BabyAI bot) plays episodes in which a share of its actions is random;
the model is cloned from its prompts and THINK + ACTION responses. The noise leaves reinforcement
learning everything to teach: the thoughts are right, the choice of action is not. The result is
a Hugging Face directory that goes through exactly the same code as a 7B model.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from minigrid.utils.baby_ai_bot import BabyAIBot, DropSubgoal
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from envs.actions import FAMILIES
from envs.babyai import SYSTEM_AFTER, SYSTEM_BEFORE, BabyAI
from envs.text_env import THINK_ACT, Observation, Step
from memory.chat import make_render
from memory.window import WindowMemory
from ppo.model import response_logps
from storage.minibatch import micro_batches

# task -> (episodes, share of random actions), chosen for a mediocre zero-shot success rate.
DEMONSTRATIONS = {
    "goto": (300, 0.8),
    "pickup": (250, 0.79),
    "open": (120, 0.45),
    "putnext": (80, 0.5),
    "pick-up-seq-go-to": (120, 0.75),
}

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Constant passages and phrases, one token each: they make a prompt five times shorter.
PASSAGES = [
    *(f"<|im_start|>{role}\n" for role in ("system", "user", "assistant")),
    *("<|im_end|>\n", "Observation:\n", "Current Observation:\n", f"\n\n{THINK_ACT}"),
    *(SYSTEM_BEFORE, SYSTEM_AFTER, "THINK:", "\nACTION:", "I do not see the", "a wall"),
    *(f" {steps} {way}" for steps in ("step", "steps") for way in ("forward", "left", "right")),
]


def demonstrations(task: str, episodes: int, noise: float, seed: int):
    """(messages, response) of every turn of the noisy expert, with a memory of one turn."""
    rng = np.random.default_rng(seed)
    actions = FAMILIES["babyai"].actions
    env, turns = BabyAI(task), []
    for episode in range(episodes):
        text, info = env.reset(seed=seed * 100_003 + episode)
        memory = WindowMemory(1)
        memory.reset(observation(text, info))
        bot, action, done = expert(env.level, task), None, False
        while not done:
            try:
                wanted = bot.replan(action)
            except Exception:  # the bot gives up where a random action made it unsolvable
                break
            action = int(rng.integers(len(actions))) if rng.random() < noise else int(wanted)
            if action >= len(actions):
                break  # the bot believes that it is done
            response = f"THINK: {thought(env.level.mission, text)}\nACTION: {actions[action]}"
            turns.append((memory.messages(), response))
            text, reward, terminated, truncated, info = env.step(response)
            done = terminated or truncated
            step = Step(
                response, response, actions[action], True, 0, reward, terminated, truncated,
                terminated, observation(text, info),
            )  # fmt: skip
            memory.update(step)
    return turns


def observation(text: str, info: dict) -> Observation:
    return Observation(text, info["kept"], info["system"], info["instruction"])


def expert(level, task: str) -> BabyAIBot:
    """The bot, without its habit of dropping what a pickup mission wants held."""
    bot = BabyAIBot(level)
    if task in ("pickup", "pick-up-seq-go-to"):
        bot.stack = [goal for goal in bot.stack if not isinstance(goal, DropSubgoal)]
    return bot


def thought(mission: str, text: str) -> str:
    """Where the thing is that the mission wants next, in words of the observation."""
    lines = text.split("\n")
    carried = next((line[12:] for line in lines if line.startswith("You carry a ")), None)
    wanted = wanted_things(mission)
    if carried and len(wanted) > 1:
        wanted = wanted[1:] if carried.endswith(wanted[0]) else wanted[:1]
    name = wanted[0]
    if carried and carried.endswith(name):
        return f"I carry the {name}."
    for line in lines:
        words = line.split()
        if words[0] != "a":
            continue
        for cut in range(2, len(words)):
            if " ".join(words[1:cut]).endswith(name):
                return f"the {name} is {' '.join(words[cut:])}."
    return f"I do not see the {name}."


def wanted_things(mission: str) -> list[str]:
    """The things of a mission in the order in which they are needed, without articles."""
    if " after you " in mission:
        later, first = mission.split(" after you ")
        mission = f"{first}, then {later}"
    if mission.startswith("open "):
        return ["key", "door"]
    for words in ("pick up ", "go to ", "put ", "then "):
        mission = mission.replace(words, "")
    parts = mission.replace(" next to ", ", ").split(", ")
    return [part.split(" ", 1)[1] for part in parts]


def train_tokenizer(texts: list[str], vocab_size: int) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in PASSAGES])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
    )


def build(vocab_size: int, eos: int, pad: int, hidden: int, layers: int) -> Qwen2ForCausalLM:
    config = Qwen2Config(
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,  # 32: the smallest head that vLLM's CPU kernels know
        num_key_value_heads=2,
        max_position_embeddings=32768,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},  # prompts are short
        tie_word_embeddings=True,
        initializer_range=0.1,  # with the usual .02 copying from the prompt is learnt 5 times later
        bos_token_id=None,
        eos_token_id=eos,
        pad_token_id=pad,
    )
    return Qwen2ForCausalLM(config)


def clone(lm, prompts, responses, steps: int, batch: int, lr: float, seed: int) -> float:
    """Maximum likelihood of the responses, AdamW with a cosine schedule; returns the last loss."""
    optimizer = torch.optim.AdamW(lm.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.01)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / 30, total_iters=30)
    rng = np.random.default_rng(seed)
    for step in range(steps):
        rows = rng.choice(len(prompts), batch, replace=False).tolist()
        n_tokens = sum(len(responses[row]) for row in rows)
        total = 0.0
        for part in micro_batches(prompts, responses, rows, token_budget=8192):
            logps = response_logps(lm, part.ids, part.response_mask, temperature=1.0)
            loss = -logps.sum() / n_tokens
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(lm.parameters(), 1.0)
        optimizer.step()
        cosine.step() if step >= 30 else warm_up.step()
        optimizer.zero_grad()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1}/{steps}: loss per token {total:.4f}", flush=True)
    return total


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("models/tiny"))
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--vocab-size", type=int, default=640)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)

    torch.manual_seed(args.seed)
    turns = []
    for task, (episodes, noise) in DEMONSTRATIONS.items():
        played = demonstrations(task, episodes, noise, seed=args.seed + 1)
        print(f"{task}: {len(played)} turns, noise {noise}", flush=True)
        turns += played
    texts = [m["content"] for messages, _ in turns for m in messages] + [r for _, r in turns]
    for passage in PASSAGES:
        texts = [text.replace(passage, "") for text in texts]
    tokenizer = train_tokenizer(texts, args.vocab_size)
    render = make_render(tokenizer, prompt_limit=4096)
    prompts = [render(messages).ids for messages, _ in turns]
    responses = [
        tokenizer(r, add_special_tokens=False).input_ids + [tokenizer.eos_token_id]
        for _, r in turns
    ]
    print(f"vocabulary {len(tokenizer)}, prompt {np.mean([len(p) for p in prompts]):.0f} tokens, "
          f"response {np.mean([len(r) for r in responses]):.0f}")  # fmt: skip
    lm = build(
        len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, args.hidden, args.layers
    )
    clone(lm, prompts, responses, args.steps, args.batch, args.lr, args.seed)
    lm.to(torch.bfloat16).save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    print(f"{sum(p.numel() for p in lm.parameters()) / 1e6:.3f} M parameters in {args.out}")


if __name__ == "__main__":
    main()
