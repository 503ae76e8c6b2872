"""What a run tells: metrics.jsonl, eval.jsonl (eval.md: the same to read), TensorBoard, one line
per update, a progress bar.

Metrics are one flat dict of floats named "group/name"; None (no episode ended yet, say) is null in
the JSON and left out of TensorBoard.
"""

import atexit
import json
import math
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from ppo.reports.evaluations import write_eval_table
from ppo.reports.zero_shot import write_check
from ppo.run.turns import write_rows, write_turns
from storage.ranks import ALONE, Ranks


class Logger:
    """first, last: the updates that this process will run, for the bar and its ETA. Of many ranks
    the first one writes: what all know, and its own times and engine."""

    def __init__(self, run_dir: Path, first: int, last: int, ranks: Ranks = ALONE):
        self.run_dir, self.ranks = run_dir, ranks
        self.leads = ranks.rank == 0
        if self.leads:
            # purge: a resumed run writes these updates again; flushed when the process ends
            self.board = SummaryWriter(run_dir, purge_step=first or None)
            atexit.register(self.board.close)
        quiet = not (self.leads and sys.stderr.isatty())
        self.bar = tqdm(total=last, initial=first, unit="update", disable=quiet, leave=False)

    def say(self, line: str) -> None:
        self.bar.write(line, file=sys.stdout)
        sys.stdout.flush()

    def write(self, update: int, metrics: dict[str, float | None]) -> None:
        """One training update."""
        self._record("metrics.jsonl", update, metrics)
        self.bar.update()
        shown = lambda name, form="{:.2f}": (
            form.format(metrics[name]) if metrics.get(name) is not None else "-"
        )
        self.say(
            f"update {update + 1:4d}/{self.bar.total}  "
            f"success {shown('rollout/success')}  return {shown('rollout/return')}  "
            f"length {shown('rollout/episode_len', '{:.0f}')}  "
            f"valid {shown('rollout/valid_action')}  "
            f"kl {shown('kl/ref', '{:.4f}')}  ev {shown('ppo/explained_variance')}  "
            f"grad {shown('ppo/grad_norm')}  {shown('time/total', '{:.1f}')} s"
        )

    def evaluation(self, update: int, summary: dict[str, float]) -> None:
        self._record("eval.jsonl", update, summary, "eval/")
        if self.leads:
            write_eval_table(self.run_dir)
        self.say(
            f"eval after {update} updates: success {summary['eval/success']:.3f} "
            f"[{summary['eval/success_low']:.3f}, {summary['eval/success_high']:.3f}]  "
            f"return {summary['eval/return']:.3f} +- {summary['eval/return_stderr']:.3f}  "
            f"length {summary['eval/episode_len']:.1f}  ({summary['eval/episodes']} episodes, "
            f"{summary['time/eval']:.0f} s)"
        )

    def zero_shot(self, transcript, title: str) -> None:
        """What the model says: in full in zero_shot.md."""
        if self.leads:
            self.say(write_check(self.run_dir, transcript, title))

    def warmup(self, metrics: dict[str, float]) -> None:
        self._record("warmup.jsonl", 0, metrics, "warmup/")
        explained = metrics.get("warmup/explained_variance_held_out", float("nan"))
        self.say(
            f"critic warm-up: held-out explained variance {explained:.2f}  "
            f"({metrics['time/total']:.0f} s)"
        )

    def faults(self, update: int, faults: list[dict]) -> int:
        """What went wrong in environments, on all ranks: a line each, the rest in faults.jsonl.
        Empties the list, returns how many there were."""
        everywhere = self.ranks.gather(list(faults))
        faults.clear()
        for fault in everywhere if self.leads else []:
            self.say(f"environment {fault['env']} lost its episode: {fault['error']}")
            with open(self.run_dir / "faults.jsonl", "a") as out:
                out.write(json.dumps({"update": update} | fault) + "\n")
        return len(everywhere)

    def rows(self, path: Path, update: int, rollouts, tokenizer, rows: list[int]) -> None:
        """Some turns of a batch, in a file of their own."""
        if self.leads:
            write_rows(path, update, rollouts, tokenizer, rows)

    def turns(self, update: int, rollouts, tokenizer, n_envs: int) -> None:
        """The turns of the first environments, in trajectories.jsonl."""
        if self.leads:
            write_turns(self.run_dir, update, rollouts, tokenizer, n_envs)

    def _record(self, file: str, update: int, metrics: dict, board_group: str = "") -> None:
        if not self.leads:
            return
        finite = {k: v if v is not None and math.isfinite(v) else None for k, v in metrics.items()}
        with open(self.run_dir / file, "a") as out:
            out.write(json.dumps({"update": update} | finite) + "\n")
        for name, value in finite.items():
            if value is not None and name.startswith(board_group):
                self.board.add_scalar(name, value, update)


class Timer:
    """`with timer("collect"): ...` adds to time/collect; `lap()` returns the dict and restarts."""

    def __init__(self):
        self.started, self.times = time.perf_counter(), {}

    @contextmanager
    def __call__(self, name: str):
        entered = time.perf_counter()
        yield
        key = f"time/{name}"
        self.times[key] = self.times.get(key, 0.0) + time.perf_counter() - entered

    def lap(self) -> dict[str, float]:
        now = time.perf_counter()
        times = self.times | {"time/total": now - self.started}
        self.started, self.times = now, {}
        return times
