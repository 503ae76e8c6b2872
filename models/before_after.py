"""What a model scores before and after it is cloned, by main.py's own evaluation.

main.py runs in a process of its own, which gives back all memory, that of a GPU as well.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from common.cli import MAIN
from common.errors import RunError
from envs import key_of
from envs.checks import check_prompts
from envs.prompts import prompts_of
from models.demonstrations import PLAYER, player_of
from run.earlier import saved_args

ENVS = {  # player -> the environment that it plays; its task, if there are several
    "babyai": "babyai-{}",
    "babyai-memory": "babyai-{}",
    "babaisai": "baba-{}",
    "babaisai-memory": "baba-{}",
    "crafter": "crafter",
    "guess": "dialogue-guess",
    "calculator": "tools-calculator",
    "shop": "tools-shop",
    "frozen-lake": "textarena:FrozenLake-v0",
    "errands": "errands-{}",
    "summarising": "{}",
}
RANKS = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}


def env_of(source: str) -> str:
    """Return the environment that demonstrations come from, or "" if it is not known.

    A user's own environment is not taken from a run's files: it has to be typed.
    """
    if source.startswith(PLAYER):
        family, _, tasks = player_of(source.removeprefix(PLAYER))
        return ENVS[family].format(next(iter(tasks)))
    name = saved_args(Path(source))["env_name"] if Path(source).is_dir() else ""
    return "" if ":" in name else name


def own_words(prompts: Path | None, source: str) -> dict[str, str] | None:
    """Return the table of a file of prompts for a scripted player. UserError: it has none"""
    if prompts is None or not source.startswith(PLAYER):
        return None
    name, tables = env_of(source), prompts_of(prompts)
    check_prompts(name, tables)
    return tables[key_of(name)]


def flags_of(args, samples: list) -> list[str]:
    """Return the flags of main.py for the evaluations; those of --eval-flags come last and win.

    args: a `models.clone.Cloning`; samples: the demonstrations. A response may have twice as many
    tokens as the longest of theirs, because an untrained model may write without an end.
    Returns an empty list if there is nothing to evaluate.
    """
    typed, env = shlex.split(args.eval_flags), env_of(args.turns[0])
    if not args.eval_episodes or not (env or "--env-name" in typed):
        return []
    limit = 2 * max(len(sample.response) for sample in samples)
    words = ["--env-name", env] if env else []
    words += ["--prompts", str(args.prompts)] if args.prompts else []
    words += ["--memory", "full"] if args.memory == "full" else []
    words += ["--prompt-limit", str(args.prompt_limit), "--response-limit", str(limit)]
    return [*words, "--eval-episodes", str(args.eval_episodes), *typed]


def evaluate(model: str | Path, flags: list[str]) -> str:
    """Return a line about an evaluation. RunError: main.py refuses, or it breaks off"""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        own = ["--model", str(model), "--eval-only", "--run-dir", str(run)]
        done = subprocess.run(
            [sys.executable, str(MAIN), *flags, *own],
            env={name: value for name, value in os.environ.items() if name not in RANKS},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["it broke off"])[-1]
            raise RunError(f"the evaluation failed: {reason}")
        figures = json.loads((run / "eval.jsonl").read_text(encoding="utf-8"))
    low, high = figures["eval/success_low"], figures["eval/success_high"]
    return (
        f"valid actions {figures['eval/valid_action']:.3f}, success {figures['eval/success']:.3f} "
        f"[{low:.3f}, {high:.3f}] in {figures['eval/episodes']} episodes"
    )
