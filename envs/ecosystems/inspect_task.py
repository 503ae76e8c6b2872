"""A task of Inspect as an agent's program: `agent:inspect:my_tasks.arithmetic`.

The name is that of a function with `@task` in a module. Inspect runs the solver and asks for the
completions, and the task's first scorer pays at the end. It evaluates one sample at a time in a
process, so each agent needs a process of its own.
"""

import functools
import random
from tempfile import TemporaryDirectory

import inspect_ai
from inspect_ai.dataset import MemoryDataset
from inspect_ai.model import get_model
from inspect_ai.scorer import value_to_float

from common.plugins import find

QUIET = dict(display="none", log_level="critical", log_realtime=False, score_display=False)


@functools.cache
def program(name: str):
    """Return the program. The seed of an episode chooses a sample of the task's dataset."""
    module, _, function = name.rpartition(".")
    make = find("task", f"{module}:{function}", {})
    samples = list(make().dataset)

    def solve(seed, base_url, api_key, reward):
        sample = samples[random.Random(seed).randrange(len(samples))]
        task = inspect_ai.task_with(make(), dataset=MemoryDataset([sample]))
        to = dict(base_url=base_url, api_key=api_key, memoize=False, responses_api=False)
        with TemporaryDirectory() as logs:
            [log] = inspect_ai.eval(task, get_model("openai/policy", **to), log_dir=logs, **QUIET)
            if log.status != "success":
                raise RuntimeError(log.error.message if log.error else f"it was {log.status}")
            scores = log.samples[0].scores or {}  # read from the log's file
        values = {name: value_to_float()(score.value) for name, score in scores.items()}
        return dict(reward=next(iter(values.values()), 0.0), metrics=values)

    return solve
