"""Writes docs/results/peer-trl.md: what is equal and what is not, tables, and curves of success."""

from pathlib import Path

from paper.compared import AXES, about_after, curves, finished_runs, points, task_table
from paper.methods import Comparison, Task
from reports.evaluations import markdown_table
from reports.run_files import Run

ENOUGH = 0.9  # success of the last 100 episodes
TITLE = "Sample efficiency and cost beside TRL"
ABOUT = """
The same environments, models and number of environment turns, with our trainer and with the
GRPOTrainer of TRL, on one core of the same machine. `python -m benchmarks.peers.compare --trl DIR`
makes the runs and this page; `benchmarks/peers/trl_grpo.py` says how TRL was installed."""
EQUAL = """
## What is equal

- The environment class, what its questions and games are drawn from (mostly with other seeds), the
  model with its tokenizer, and temperature 1. Of tools-calculator the prompts are equal to the
  token. For this the copy of the embedded model that both sides train leaves out the line break
  behind the agent's messages: TRL keeps the end token as it was sampled, and the tokenizer has one
  token for the end with its line break. The model was cloned with the line break, so it begins
  lower here than on other pages.
- The number of environment turns, 20,480, with those of our critic's warm-up. TRL ends after the
  batch that reaches it.
- One thread, generation by transformers, fp32, AdamW with betas .9 and .99 at a constant learning
  rate. Processor minutes
  are those of playing and training, without loading and evaluations. main.py judges all trained
  models, on the same panel.
- Groups of 8 whole episodes from one seed, in all rows but our default.
- The learning rate: our default takes the one of the environment's recipe. Each other row is tried
  with it and with twice as much, on another seed.

## What is not

- **The estimator.** Our default is the paper's: dual-discount GAE with a critic, which is warmed up
  first, in batches of 32 x 8 turns. GRPO (ours) beside GRPO of TRL is the like-for-like pair.
- **The batch.** Ours has whole groups of at least 256 turns. TRL's has a fixed number of rows: 64
  episodes of tools-calculator, 200 to 300 turns, or 256 turns of BabyAI.
- **Optimizer steps.** Ours makes two passes over a batch in minibatches of 128 turns. TRL makes one
  step with each batch unless it is told otherwise; the last row makes two passes of two
  minibatches.
- **KL.** Our GRPO has .04 KL in the loss, as it was published, and so has the last row. TRL's
  default is none.
- **The loss.** TRL's default, `dapo`, divides by the tokens of the batch. In tools-calculator it
  trains an episode as one sequence; ours trains turns, which share a row where they extend one
  another.
- **A message that cannot be read** costs .1 and is answered with an error in our runs. TRL takes it
  for the answer, which ends the episode. Neither happens often.

## BabyAI through TRL

`environment_factory` takes public methods as tools, and keeps an episode as one sequence: a prompt
to which calls and results are added. The embedded model cannot be asked so. It writes THINK and
ACTION in plain text, and its prompt is a window over past turns that is written anew in each turn,
so no prompt begins with the one before. `rollout_func` can do it: it hands TRL whatever rows it
played. `benchmarks/peers/turns.py` plays groups of whole episodes with our environments, memories
and prompts and TRL's own generation, and makes each turn a row. A batch of TRL has a fixed number
of rows, and episodes differ in length: turns that are too many are left out at random, and are
counted as played. TRL expects equally many rows in each group, so the advantage within the group
of 8 episodes is computed beside it, handed to it as the reward, and only the mean of the batch is
subtracted from it. So TRL contributes generation, log-probs, loss and optimizer there.
"""
SEEN = """
- **Success at the end: all learn both tasks.** The means end at .96 to .98 and at .98 to 1.00. On
  tools-calculator our GRPO ends a little lower (.961) than TRL's (.976 and .978).
- **Turns: GRPO needs fewer,** but for one seed of TRL's default. On tools-calculator it reaches .9
  after 2,200 to 5,100 turns, our default after 8,200 to 8,400, of which 5,120 are the warm-up of
  its critic; on babyai-goto the warm-up takes 10,240 of 13,100 to 14,100. After the warm-up our
  default needs 2,800 to 3,800 turns. Episodes are short in both tasks; what a critic is worth over
  hundreds of turns is not tested here. Our GRPO averaged the last 100 episodes to end, which are
  the longer ones of a batch of whole episodes, so it may reach .9 a little earlier than is shown.
- **Processor time: ours is the cheaper per turn where the optimizer steps are the same,** by a
  sixth on tools-calculator (4.0 against 4.8 seconds for 1,000 turns) and a quarter on babyai-goto
  (7.4 against 10.0). TRL's default, one step a batch, is cheaper still (3.1 and 6.2).
- Between our GRPO and TRL's no difference in turns is decided by three seeds, but on babyai-goto
  TRL's default, with one step a batch, is in the mean slower to learn than both that
  take more steps.
"""


def write_page(path: Path, plan) -> None:
    """Write the page and its pictures beside it. plan: `benchmarks.peers.plan.Plan`"""
    comparison = Comparison(TITLE, plan.tasks, plan.methods, ABOUT)
    found = {(task, m): plan.of(task, m) for task in plan.tasks for m in plan.methods}
    parts = [f"# {TITLE}", ABOUT.strip(), progress(found), about_versions(found)]
    for task in plan.tasks:
        tables = [task_table(comparison, task, found, plan), soon_table(plan, task, found)]
        parts += [f"## {task.env}", *tables]
        for axis in AXES:
            if png := curves(comparison, task, found, axis):
                file = f"{path.stem}-{task.env}-{axis}.png"
                (path.parent / file).write_bytes(png)
                parts.append(f"![{file}]({file})")
    parts += [
        about_after(plan.tasks[0]),
        f"## Findings\n{SEEN.rstrip()}",
        EQUAL.strip(),
    ]
    parts += ["## The search of learning rates", search_table(plan)]
    path.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")


def progress(found: dict) -> str:
    wanted = sum(task.seeds for task, _ in found)
    done = sum(len(finished_runs(runs)) for runs in found.values())
    return f"**Progress:** {done} of {wanted} runs are finished."


def about_versions(found: dict) -> str:
    """The versions of the libraries, and our commits."""
    runs = [run for of in found.values() for run in of.values()]
    versions = next((run.settings["versions"] for run in runs if "versions" in run.settings), {})
    commits = sorted({run.commit for run in runs} - {"-"})
    texts = [f"{name} {version}" for name, version in versions.items()]
    texts += [f"ours at {', '.join(commits)}"] if commits else []
    return f"Versions: {', '.join(texts)}." if texts else ""


def soon_table(plan, task: Task, found: dict) -> str:
    """How soon the success of the last 100 episodes reached ENOUGH, for each seed."""
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
