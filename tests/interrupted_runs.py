"""The runs that `interruptions.py` interrupts: tests do so, and `benchmarks.faults`."""

import json
from pathlib import Path

from recipes import MODELS

SMALL = """--n-env 2 --e-len 2 --num-updates 3 --minibatch 4 --lr 0.01 --response-limit 6
--prompt-limit 8192 --save-interval 1 --eval-interval 2 --eval-episodes 2 --engine transformers"""
WARM = "--w-epoch 1 --w-iter 1 --w-fraction 1"
AGENT = "--env-name agent:agent_programs:echo --memory verbatim --n-env 2"
KINDS = {  # name -> flags
    "turns": f"--env-name toy {WARM} --max-episode-steps 3",
    "tasks": f"--env-name babyai-goto,babyai-open {WARM} --max-episode-steps 3",
    "groups": "--env-name toy --advantages grpo --group-size 2 --max-episode-steps 2",
    "lora": f"--env-name toy {WARM} --train lora:2 --max-episode-steps 3",
    "agents": f"{AGENT} {WARM}",
    "notes": f"--env-name errands-20 {WARM} --max-episode-steps 6 --response-limit 24",
    "summaries": f"--env-name toy {WARM} --memory summary --memory-length 2",
    "workers": f"--env-name toy {WARM} --max-episode-steps 3 --env-workers 2",
}
MADE_FOR = {"notes": MODELS / "tiny-errands"}  # the others' model writes random letters
# Which worker answers first decides what the engine batches together, and so its rounding.
WITHOUT = {"workers": ["engine/"]}
KILL = 9


def request(kind: str, folder: Path, model: Path | str, stops: list | str) -> str:
    """Return what `interruptions.py run` gets; see its `Story`."""
    model = MADE_FOR.get(kind, model)
    flags = [*SMALL.split(), *KINDS[kind].split(), "--model", str(model)]
    asked = dict(folder=str(folder), flags=flags, without=WITHOUT.get(kind, []), stops=stops)
    return json.dumps(asked)
