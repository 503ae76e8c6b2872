"""Tasks and methods that a comparison is made of, and the flags of their runs.

All runs of a task play the same number of environment turns, including the critic's warm-up.
"""

from dataclasses import dataclass, field

from paper.rows import QWEN, SCALES, TRAINED_EPISODES, PaperRow, measure_of

BATCH_TURNS = 256  # minimum turns of an update: 32 x 8
GROUP_FLAGS = {"group_size": 8}
SEEDS = range(1, 6)  # of each method in each task
SEARCH_SEEDS = (101, 102)  # disjoint from the seeds of the comparison
# The learning rate of each family's recipe, which a factor multiplies
LRS = {
    "paper": {},
    "embedded": {
        "babyai": 2e-4,
        "baba": 2e-4,
        "crafter": 2e-4,
        "errands": 3e-4,
        "tools": 4e-4,
    },
}
PAPER_LR = 1e-6
TASK_MODELS = {
    "paper": {"errands": QWEN.format(3), "tools": QWEN.format(3)},
    "embedded": {
        "errands": "models/tiny-errands",
        "tools": "models/tiny-calculator",
    },
}


@dataclass(frozen=True)
class Task:
    """A task of a comparison.

    episodes: per evaluation
    warm_up, updates: batches of `batch` turns, for methods with a critic
    """

    env: str
    warm_up: int
    updates: int
    batch: int = BATCH_TURNS
    episodes: int = TRAINED_EPISODES

    @property
    def turns(self) -> int:
        """Environment turns of a run."""
        return self.batch * (self.warm_up + self.updates)

    @property
    def measure(self) -> str:
        """The metric of eval.jsonl that the comparison shows."""
        return measure_of(self.env)


@dataclass(frozen=True)
class Method:
    """A method of a comparison.

    flags: flags of main.py; critic: whether it has a critic
    groups: whether it plays groups of whole episodes
    factor: of the learning rate, where it is not searched
    """

    name: str
    label: str
    flags: dict = field(default_factory=dict, hash=False)
    critic: bool = True
    groups: bool = False
    factor: float | None = None


@dataclass(frozen=True)
class Comparison:
    """A comparison of methods on tasks.

    factors: multiples of the family's learning rate that are tried for each method; (1,): no search
    memories: whether the methods are memories; each then begins at a success of its own
    against: names of the methods that all others are compared with
    """

    title: str
    tasks: list[Task]
    methods: list[Method]
    about: str
    factors: tuple[float, ...] = (1.0,)
    memories: bool = False
    against: tuple[str, ...] = ()


def run_name(task: Task, method: Method, factor: float) -> str:
    return f"{task.env}-{method.name}" + f"-lr{factor:g}x" * (factor != 1)


def row_of(task: Task, method: Method, factor: float) -> PaperRow:
    return PaperRow(task.env, f"{task.env}, {method.label}", run_name(task, method, factor))


def method_flags(scale: str, task: Task, method: Method, factor: float, seed: int) -> dict:
    """Return flag -> value for main.py."""
    warm_up = method.flags.get("w_epoch", task.warm_up) if method.critic else 0
    updates = task.turns // task.batch - warm_up
    lr = factor * LRS[scale].get(family_of(task), PAPER_LR)
    flags = base_flags(scale, task, seed)
    flags["lr"], flags["lr_schedule"] = lr, "constant"
    flags["num_updates"] = updates
    flags["eval_interval"] = updates + 1  # `initial_flags` evaluates the initial model once for all
    if method.critic:
        flags["w_epoch"] = warm_up
    if method.groups or not method.critic:  # their batches differ in size
        flags["num_turns"] = updates * task.batch
    return flags | method.flags | {"eval_episodes": evaluation_episodes(task, seed)}


def evaluation_episodes(task: Task, seed: int) -> int:
    """Return the number of episodes of the evaluation after training."""
    return task.episodes // 2 if seed in SEARCH_SEEDS else task.episodes


def initial_flags(scale: str, task: Task) -> dict:
    """Return the flags that evaluate a task's initial model."""
    return base_flags(scale, task, seed=1) | {"eval_episodes": task.episodes, "eval_only": True}


def base_flags(scale: str, task: Task, seed: int) -> dict:
    settings = SCALES[scale]
    model = (settings["models"] | TASK_MODELS[scale])[family_of(task)]
    return {"env_name": task.env, "model": model} | settings["flags"] | {"seed": seed}


def family_of(task: Task) -> str:
    return task.env.split("-")[0]
