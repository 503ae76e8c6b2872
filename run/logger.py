"""What a run tells: metrics.jsonl, eval.jsonl, warmup.jsonl, TensorBoard, and lines of `Console`.

Metrics are one flat dict of floats named "group/name". A figure that does not exist (too few
episodes have ended, say) is None: null in the JSON, and absent from TensorBoard. Updates count from
1: `update` is in every file the number of updates made when the line was written.
"""

import json
import math
from contextlib import suppress
from pathlib import Path

from common.cli import command
from common.errors import RunError
from common.ranks import ALONE, Ranks
from run.board import open_board, show_settings
from run.card import refresh_card
from run.console import Console
from run.figures import batch_figures
from run.files import append_records
from run.track import make_tracker
from run.turns import write_evaluation, write_open_episodes, write_rows, write_turns

# File -> which of its metrics TensorBoard shows: those whose names begin so.
BOARD = {"metrics.jsonl": "", "warmup.jsonl": "warmup/", "eval.jsonl": "eval/"}
MAX_SKIPPED_STEPS = 10  # optimizer steps without finite numbers that a run survives
HEADER = (
    "advantages n_env e_len group_size num_updates minibatch ppo_epoch lr critic_lr critic_layers "
    "w_epoch w_iter memory_length prompt_limit response_limit value_clip seed"
).split()


class Logger:
    """Writes the files and lines of a run. Only rank 0 writes; the times are its own.

    made: updates that a resumed run has made before
    """

    def __init__(self, args, run_dir: Path, made: int, tokenizer, ranks: Ranks = ALONE):
        self.args, self.tokenizer = args, tokenizer
        self.run_dir, self.ranks = run_dir, ranks
        self.leads = ranks.rank == 0
        if self.leads:
            again = args.resume and not args.eval_only  # these updates are made a second time
            self.board = open_board(run_dir, made if again else None)
            if again:
                self._put_back(made)
            elif not args.resume:
                show_settings(self.board, vars(args))
            self.tracker = make_tracker(args, run_dir)
        self.console = Console(args.num_updates, made, self.leads)
        self.say = self.console.say

    # ---- lines ------------------------------------------------------------------------------

    def describe(self, actor_critic, engine) -> None:
        """Say what this run is, before it starts."""
        args, count = self.args, sum(p.numel() for p in actor_critic.parameters()) / 1e6
        size = f"{count:.2f} M parameters, {'no' if args.no_critic else 'with the'} critic"
        self.say(f"{args.env_name}, {args.model} ({size}), {self.run_dir}")
        names = {name: getattr(args, name) for name in HEADER}
        self.console.say_table(names | dict(engine=type(engine).__name__, ranks=self.ranks.size))
        if args.defaults and not args.resume:  # a resumed run has the settings that it began with
            self.say(f"  defaults of {args.defaults}")

    def goodbye(self, stop, saved: bool = True) -> int:
        """Say where the model is, or how a run that was stopped goes on; returns the exit code.

        saved: whether there is a checkpoint to go on from
        """
        if stop.asked and not self.args.eval_only:
            done = "saved; go on" if saved else "nothing to save yet; begin again"
            again = f"{command('python main.py')} --resume {self.run_dir}"
            self.say(f"{stop.asked.name}: {done} with: {again}")
        elif not self.args.eval_only:
            self.say(f"trained model: {self.run_dir / 'model'}")
        self.ranks.wait()
        return stop.code

    # ---- phases of the run ------------------------------------------------------------------

    def warmup(self, metrics: dict[str, float], envs, rollouts) -> None:
        """Record the critic's warm-up, and the turns of episodes that go on in the first update."""
        metrics["warmup/env_faults"] = self._faults(0, envs)
        self._record("warmup.jsonl", 0, metrics)
        if self.leads:
            write_open_episodes(self.run_dir, rollouts, self.tokenizer, self.args.log_envs)
        explained = shown(metrics, "warmup/explained_variance_held_out")
        self.say(
            f"critic warm-up: held-out explained variance {explained}  "
            f"({metrics['time/total']:.0f} s)"
        )
        self.console.forget_time()

    def write(self, update: int, rollouts, envs, figures: dict[str, float | None]) -> None:
        """Record update number `update`: its metrics, and the turns of the first environments."""
        metrics = batch_figures(rollouts) | figures
        metrics["rollout/env_faults"] = self._faults(update, envs)
        metrics["turns"] = rollouts.episodes.turns + len(rollouts.rows)
        self._record("metrics.jsonl", update, metrics)
        if self.leads:
            write_turns(self.run_dir, update, rollouts, self.tokenizer, self.args.log_envs)
        self.console.updated()
        self.console.say_parts([  # a narrow terminal leaves out high numbers first
            (0, f"update {update:4d}/{self.args.num_updates}"),
            (1, f"success {shown(metrics, 'rollout/success')}"),
            (2, f"return {shown(metrics, 'rollout/return')}"),
            (3, f"length {shown(metrics, 'rollout/episode_len', '.0f')}"),
            (7, f"({metrics['rollout/episodes']} episodes)"),
            (5, f"valid {shown(metrics, 'rollout/valid_action')}"),
            (6, f"kl {shown(metrics, 'kl/ref', '.4f')}"),
            (8, f"ev {shown(metrics, 'ppo/explained_variance')}"),
            (9, f"grad {shown(metrics, 'ppo/grad_norm')}"),
            (4, f"{shown(metrics, 'time/total', '.1f')} s"),
        ])  # fmt: skip

    def evaluation(self, update: int, summary: dict[str, float], envs) -> None:
        """Record an evaluation of the policy after `update` updates."""
        faults = self._faults(update, envs)
        asked = {"asked": True} if self.args.eval_only and self.args.resume else {}
        self._record("eval.jsonl", update, summary | {"eval/env_faults": faults} | asked)
        self.say(
            f"eval after {update} updates: success {summary['eval/success']:.3f} "
            f"[{summary['eval/success_low']:.3f}, {summary['eval/success_high']:.3f}]  "
            f"return {summary['eval/return']:.3f} +- {summary['eval/return_stderr']:.3f}  "
            f"length {summary['eval/episode_len']:.1f}  ({summary['eval/episodes']} episodes, "
            + f"{faults} faults of environments, " * (faults > 0)
            + f"{summary['time/eval']:.0f} s)"
        )
        if self.leads:
            refresh_card(self.run_dir)
        self.console.forget_time()

    def played(self, update: int, turns: list) -> None:
        """Write what the first environments of a panel played: its turns, in order."""
        if self.leads:
            write_evaluation(self.run_dir, update, turns, self.tokenizer, self.args.log_envs)

    def check_finite(self, update: int, rollouts, agent) -> None:
        """RunError: the numbers of too many steps broke down; the last such turns are written."""
        if agent.skipped_steps > MAX_SKIPPED_STEPS:
            report = self.run_dir / "non_finite.jsonl"
            if self.leads:
                write_rows(report, update, rollouts, self.tokenizer, agent.skipped_rows)
            raise RunError(
                f"{agent.skipped_steps} optimizer steps had a loss or gradient that is not finite; "
                f"the turns of the last are in {report}, and the checkpoints are whole"
            )

    # ---- files ------------------------------------------------------------------------------

    def _faults(self, update: int, envs) -> int:
        """Tell what went wrong in the environments of all ranks, empty the list, return its length.

        Each fault gets a line on the terminal; faults.jsonl has the tracebacks.
        """
        faults = self.ranks.gather(list(envs.faults))
        envs.faults.clear()
        for fault in faults if self.leads else []:
            who = "an idle worker" if fault["env"] is None else f"environment {fault['env']}"
            self.say(f"fault of {who}: {fault['error']}")
        if self.leads and faults:
            append_records(self.run_dir / "faults.jsonl", update, faults)
        return len(faults)

    def _record(self, file: str, update: int, metrics: dict) -> None:
        """Append a line to one of the files of BOARD, and show it there."""
        if not self.leads:
            return
        finite = {k: v if v is not None and math.isfinite(v) else None for k, v in metrics.items()}
        append_records(self.run_dir / file, update, [finite])
        there = self._show(file, update, finite)
        if self.tracker:
            self.tracker.log(update, there)

    def _show(self, file: str, update: int, metrics: dict) -> dict[str, float]:
        """Add what exists to TensorBoard, and return it."""
        begin = BOARD[file]
        there = {k: v for k, v in metrics.items() if v is not None and k.startswith(begin)}
        for name, value in there.items():
            self.board.add_scalar(name, value, update)
        return there

    def _put_back(self, made: int) -> None:
        """Show what the logs have of step `made`. TensorBoard had to forget this step, for the
        evaluation after `made` updates may be played again."""
        for path in (self.run_dir / file for file in BOARD):
            for line in path.read_text().splitlines() if path.exists() else ():
                with suppress(ValueError):  # a line that was filled in is empty
                    record = json.loads(line)
                    if record.pop("update") == made:
                        self._show(path.name, made, record)


def shown(metrics: dict[str, float | None], name: str, form: str = ".2f") -> str:
    """The text of a figure, "-" where it does not exist."""
    value = metrics.get(name)
    return "-" if value is None or math.isnan(value) else format(value, form)
