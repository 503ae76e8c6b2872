"""Writes docs/results/peer-trl.md: tables, curves of success, and what is equal or differs."""

from pathlib import Path

from paper.compared import about_after, task_table
from paper.curves import AXES, curves, finished_runs, points
from paper.methods import SEEDS, Comparison, Task
from paper.pages import write_page
from reports.evaluations import markdown_table
from reports.run_files import Run

ENOUGH = 0.9  # success of the last 100 episodes
TITLE = "Sample efficiency and cost compared with TRL"
ABOUT = """
This page compares our trainer with TRL's GRPOTrainer on the same environments, models and number of
environment turns, on one core of the same machine. `python -m benchmarks.peers.compare --trl DIR`
makes the runs and this page. The command that installs TRL is in `benchmarks/peers/trl_grpo.py`."""
EQUAL = """
## What is equal

- The environment class, the distribution of its questions and games (mostly with different seeds),
  the model with its tokenizer, and temperature 1. In tools-calculator the prompts are equal token
  by token. TRL keeps the end token as it was sampled, but the tokenizer has one token for the end
  of a message together with its line break. So both sides train a copy of the embedded model whose
  template leaves out the line break after the agent's messages. The model was cloned with the line
  break, so it starts lower here than on other pages.
- The number of environment turns, 20,480, including those of our critic's warm-up. TRL stops after
  the batch that reaches it.
- One thread, generation by transformers, fp32, and AdamW with betas .9 and .99 at a constant
  learning rate. Processor minutes include playing and training, but neither loading nor
  evaluations. main.py evaluates all trained models, on the same episodes.
- Groups of 8 whole episodes from one seed, in all rows except our default.
- The learning rate: our default uses the rate of the environment's recipe. For each other row this
  rate and twice this rate are tried, on another seed.

## What differs

- **The estimator.** Our default is the paper's method: dual-discount GAE with a critic, which is
  warmed up first, in batches of 32 x 8 turns. The like-for-like pair is our GRPO and TRL's.
- **The batch.** Ours has whole groups with at least 256 turns. TRL's has a fixed number of rows: 64
  episodes of tools-calculator (200 to 300 turns), or 256 turns of BabyAI.
- **Optimizer steps.** Our trainer makes two passes over a batch in minibatches of 128 turns. TRL
  makes one step per batch by default. In the last row it makes two passes of two minibatches.
- **KL.** Our GRPO has a KL penalty of .04 in the loss, as published, and so has the last row. TRL
  has none by default.
- **The loss.** TRL's default, `dapo`, divides by the number of tokens in the batch. In
  tools-calculator it trains an episode as one sequence. Ours trains turns, which share a row if one
  extends the other.
- **Messages that cannot be parsed.** In our runs such a message costs .1, and the agent reads an
  error. TRL treats it as the answer, which ends the episode. Both are rare.

## BabyAI through TRL

TRL's `environment_factory` uses public methods as tools, and represents an episode as one sequence,
a prompt that grows with each call and its result. The embedded model for BabyAI does not fit this
interface. It writes THINK and ACTION in plain text, and its prompt, a window over past turns, is
rewritten in every turn, so no prompt extends the one before.

TRL's `rollout_func` does fit, because it can return any rows. `benchmarks/peers/turns.py` plays
groups of whole episodes with our environments, memories and prompts and with TRL's generation, and
makes each turn a row. A batch of TRL has a fixed number of rows, but episodes differ in length. So
surplus turns are dropped at random, and still count as played. TRL also expects the same number of
rows in every group. So our code computes the advantage within each group of 8 episodes and passes
it as the reward, from which TRL only subtracts the mean of the batch. TRL contributes generation,
log-probs, the loss and the optimizer.
"""


def write_peers(path: Path, plan) -> None:
    """Write the page and its pictures beside it. plan: `benchmarks.peers.plan.Plan`"""
    comparison = Comparison(TITLE, plan.tasks, plan.methods, ABOUT)
    found = {(task, m): plan.of(task, m) for task in plan.tasks for m in plan.methods}
    parts = [f"# {TITLE}", ABOUT.strip(), progress(found), about_versions(found)]
    for task in plan.tasks:
        tables = [task_table(comparison, task, found, plan), speed_table(plan, task, found)]
        parts += [f"## {task.env}", *tables]
        for axis in AXES:
            if png := curves(comparison, task, found, axis):
                file = f"{path.stem}-{task.env}-{axis}.png"
                (path.parent / file).write_bytes(png)
                parts.append(f"![{file}]({file})")
    parts += [about_after(plan.tasks), EQUAL.strip(), "## Learning rate search", search_table(plan)]
    write_page(path, *parts)


def progress(found: dict) -> str:
    wanted = len(SEEDS) * len(found)
    done = sum(len(finished_runs(runs)) for runs in found.values())
    return f"**Progress:** {done} of {wanted} runs are finished."


def about_versions(found: dict) -> str:
    """Return a line with the versions of the libraries, and our commits."""
    runs = [run for of in found.values() for run in of.values()]
    versions = next((run.settings["versions"] for run in runs if "versions" in run.settings), {})
    commits = sorted({run.commit for run in runs} - {"-"})
    texts = [f"{name} {version}" for name, version in versions.items()]
    texts += [f"ours at {', '.join(commits)}"] if commits else []
    return f"Versions: {', '.join(texts)}." if texts else ""


def speed_table(plan, task: Task, found: dict) -> str:
    """Return a table of when the success of the last 100 episodes reached ENOUGH, for each seed."""
    rows = [["", f"turns until {ENOUGH:g}", f"processor minutes until {ENOUGH:g}",
             "seconds for 1,000 turns"]]  # fmt: skip
    for method in plan.methods:
        runs = list(finished_runs(found[task, method]).values())
        turns = [first(run, "turns", ",.0f") for run in runs]
        minutes = [first(run, "minutes", ".1f") for run in runs]
        costs = [max(at) / max(points(run, "turns")) * 60_000
                 for run in runs if (at := points(run, "minutes"))]  # fmt: skip
        each = " ".join(f"{cost:.1f}" for cost in costs)
        rows.append([method.label, *(" ".join(x) or "-" for x in (turns, minutes)), each or "-"])
    return markdown_table(rows)


def first(run: Run, axis: str, form: str) -> str:
    reached = [x for x, success in points(run, axis).items() if (success or 0) >= ENOUGH]
    return format(reached[0], form) if reached else "never"


def search_table(plan) -> str:
    rows = [["", "", *(f"learning rate x {factor:g}" for factor in plan.factors), "chosen"]]
    for task in plan.tasks:
        for method in plan.methods:
            tried, chosen = plan.tried(task, method), plan.factor(task, method)
            cells = [f"{tried[f]:.3f}" if f in tried else "-" for f in plan.factors]
            last = "-" if chosen is None else f"{chosen:g}"
            rows.append([task.env, method.label, *cells, last])
    return markdown_table(rows)
