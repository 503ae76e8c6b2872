"""The model card: model/README.md, in the form that the Hugging Face hub shows.

It shows how the model was trained, how well it plays and how to load it. It is written with every
model/, and again after an evaluation of this model. It contains no local paths and no times.
"""

import json
import shlex
from contextlib import suppress
from pathlib import Path

from common.flags import spelled
from common.trained import ALL, lora_rank
from run.earlier import model_begun
from run.files import write_text
from run.saved import model_update

ARGS, CARD = "args.json", "README.md"
PAPER = "https://openreview.net/forum?id=6CE5PLsZdW"
SETTINGS = [
    "env_name",
    "model",
    "seed",
    "advantages",
    "n_env",
    "e_len",
    "group_size",
    "minibatch",
    "ppo_epoch",
    "lr",
    "critic_lr",
    "kl_coef",
    "on_invalid",
    "gamma_step",
    "lam_step",
    "gamma_token",
    "lam_token",
    "train",
    "memory",
    "memory_length",
    "prompt_limit",
    "response_limit",
    "temperature",
]
HEAD = "| updates | episodes | success | return | length |\n|---|---|---|---|---|\n"
ROW = (
    "| {update} | {eval/episodes} | {eval/success:.3f} [{eval/success_low:.3f}, "
    "{eval/success_high:.3f}] | {eval/return:.3f} +- {eval/return_stderr:.3f} | "
    "{eval/episode_len:.1f} |\n"
)
TEXT = """\
---
library_name: transformers
pipeline_tag: text-generation
{base}tags:
- reinforcement-learning
- ppo
- agent
- turnwise-ppo
---

# {model}, trained in {env} by PPO

This language model acts in the text environment `{env}`. It was trained there (updates: {update})
with turnwise-ppo, which follows the paper [Verlog: Context-lite Multi-turn Reinforcement Learning
framework for Long-Horizon LLM Agents]({paper}).

## Evaluation

{evaluation}
## How to load it

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("THIS")  # a directory, or a name on the hub
tokenizer = AutoTokenizer.from_pretrained("THIS")
```

vLLM loads it as it is: `vllm serve THIS`. To play the evaluation again, with the prompts of the
training{file}:

    turnwise evaluate --env-name {name} --model THIS {flags}

The critic is not part of it.{adapter}

## Settings

| setting | value |
|---|---|
{settings}
Versions: {versions}.
"""
# Flags that the command of the card always gives, and flags that it gives if they are not at their
# defaults.
ALWAYS_GIVEN = ["memory", "memory_length", "prompt_limit", "response_limit", "eval_episodes"]
DEFAULTS = {
    "on_invalid": "default",
    "history_thinking": "keep",
    "max_episode_steps": None,
    "format_penalty": 0.1,
    "endpoint_sampling": "refuse",
    "temperature": 1.0,
}


def model_card(run: Path, update: int) -> str:
    """Return the card of a run's model after `update` updates."""
    about = json.loads((run / ARGS).read_text(encoding="utf-8"))
    args, begun = about["args"], model_begun(about)
    local = Path(begun).exists()  # a local path is of no use to others
    model = Path(begun).name if local else begun
    shown = {name: args.get(name) for name in SETTINGS} | {"model": model}
    no_length = args.get("memory") in ("full", "verbatim")  # they refuse --memory-length
    names = [name for name in ALWAYS_GIVEN if not (no_length and name == "memory_length")]
    names += [name for name, default in DEFAULTS.items() if args.get(name, default) != default]
    flags = [f"{spelled(name)} {shlex.quote(str(args.get(name)))}" for name in names]
    flags += ["--data PATH"] * bool(args.get("data"))
    flags += ["--prompts FILE"] * bool(args.get("prompts"))
    if args.get("prompts"):  # its tables are among the settings, as JSON
        shown["prompts"] = json.dumps(args["prompts"])
    versions = (about.get("versions") or {}) | {"commit": about.get("git") or "unknown"}
    has_adapter = lora_rank(args.get("train", ALL)) > 0
    return TEXT.format(
        base="" if local else f"base_model: {model}\n",
        model=model,
        env=args["env_name"],
        name=shlex.quote(args["env_name"]),
        update=update,
        paper=PAPER,
        evaluation=evaluation_table(run, update),
        flags=" ".join(flags),
        file=" (FILE: `prompts` below, as TOML)" * bool(args.get("prompts")),
        adapter=" The folder `adapter` holds the LoRA adapter." * has_adapter,
        settings="".join(f"| {name} | {cell(value)} |\n" for name, value in shown.items()),
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
    )


def cell(value) -> str:
    return str(value).replace("|", "\\|")  # an unescaped | would end the cell


def evaluation_table(run: Path, update: int) -> str:
    """Return a table with a row for each evaluated update up to `update`.

    The run's own evaluation of an update comes first. Without one, the last evaluation that a user
    asked for counts, though its settings may differ.
    """
    path, rows, own = run / "eval.jsonl", {}, set()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(ValueError):  # an interrupted write leaves an empty or incomplete line
            record = json.loads(line)
            number, asked = record["update"], record.get("asked")
            if number <= update and not (asked and number in own):
                rows[number] = ROW.format_map(record)
                if not asked:
                    own.add(number)
    if not rows:
        return "None yet.\n"
    note = "Success with its Wilson 95 % interval, return with its standard error"
    return f"{HEAD}{''.join(rows.values())}\n{note}, episodes with fixed seeds.\n"


def refresh_card(run: Path) -> None:
    """Rewrite the card of a run's saved model, if there is one. RunError: it cannot be written"""
    update = model_update(run)
    if update is not None and not (run / "model").is_symlink():  # it may lead anywhere
        write_text(run / "model" / CARD, model_card(run, update))
