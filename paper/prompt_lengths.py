"""Prompt lengths with different memories, over an episode."""

from pathlib import Path
from statistics import fmean

from common.plugins import UserError
from paper.methods import SEEDS, Task
from reports.evaluations import markdown_table
from run.dialogue_log import read_log

STEPS = (1, 2, 4, 8, 12, 16, 24, 32)  # turns of an episode


def lengths_table(plan, task: Task) -> str:
    """Return the table of the mean prompt length at some turns of the logged episodes, or "".

    plan: `paper.compare.ComparisonPlan`
    """
    means = {}
    for method in plan.comparison.methods:
        runs = [plan.run(task, method, 1.0, seed) for seed in SEEDS]
        means[method.label] = prompt_lengths([run.path for run in runs if run.path.exists()])
    steps = [step for step in STEPS if any(step in row for row in means.values())]
    if not steps:
        return ""
    rows = [
        [label, *(f"{row[step]:.0f}" if step in row else "-" for step in steps)]
        for label, row in means.items()
    ]
    head = ["prompt tokens at turn", *map(str, steps)]
    return markdown_table([head, *rows])


def prompt_lengths(paths: list[Path]) -> dict[int, float]:
    """Map the turns of an episode to the mean number of prompt tokens in the logs of runs."""
    from transformers import AutoTokenizer  # here: other pages need not wait for it

    lengths: dict[int, list[int]] = {}
    for path in paths:
        if not (path / "model").is_dir():  # it is not finished
            continue
        try:
            turns = read_log(path)
        except UserError:  # nothing was logged (--log-envs 0)
            continue
        tokenizer = AutoTokenizer.from_pretrained(path / "model")
        for turn in turns:
            ids = tokenizer(turn["prompt"], add_special_tokens=False)["input_ids"]
            lengths.setdefault(turn["step"], []).append(len(ids))
    return {step: fmean(some) for step, some in lengths.items()}
