"""What a run reports: its figures (`Records`), the lines of `Console`, faults and dialogue logs.

Updates count from 1: in every file `update` is the number of updates made before the line.
"""

import math
from pathlib import Path

from common.errors import RunError
from common.ranks import ALONE, Ranks
from ppo.engines.gap import GapWarning
from run.card import refresh_card
from run.console import Console
from run.figures import batch_figures
from run.files import append_records
from run.program_errors import program_errors_line
from run.records import Records
from run.turns import write_evaluation, write_open_episodes, write_rows, write_turns

MAX_SKIPPED_STEPS = 10  # optimizer steps without finite numbers that a run survives
MOST_TASKS = 8  # of a mixture, in a line
SETTINGS = (  # that a run prints when it starts
    "advantages",
    "n_env",
    "e_len",
    "env_workers",
    "group_size",
    "num_updates",
    "minibatch",
    "ppo_epoch",
    "lr",
    "critic_lr",
    "critic_layers",
    "w_epoch",
    "w_iter",
    "memory_length",
    "prompt_limit",
    "response_limit",
    "value_clip",
    "seed",
)


class Logger:
    """Writes the files and lines of a run. Only rank 0 writes; the times are its own.

    made: updates that a resumed run has made before
    """

    def __init__(self, args, directory: Path, made: int, tokenizer, ranks: Ranks = ALONE):
        self.args, self.tokenizer = args, tokenizer
        self.directory, self.ranks = directory, ranks
        self.leads = ranks.rank == 0
        self.records = Records(args, directory, made) if self.leads else None
        self.console = Console(args.num_updates, made, self.leads)
        self.say = self.console.say

    def describe(self, actor_critic, engine) -> None:
        """Print what this run is, before it starts."""
        dtype = str(actor_critic.dtype).removeprefix("torch.")
        self.gap_warning = GapWarning(dtype, self.args.temperature)
        args, count = self.args, parameter_count(actor_critic) / 1e6
        size = f"{count:.2f} M parameters, {'no' if args.update.no_critic else 'with the'} critic"
        self.say(f"{args.env_name}, {args.model} ({size}), {self.directory}")
        settings = {name: getattr(args, name) for name in SETTINGS}
        about = {"engine": engine.name, "ranks": self.ranks.size} | engine.chosen
        self.console.say_table(settings | about)
        if args.defaults and not args.resume:  # a resumed run has the settings that it began with
            self.say(f"  defaults of {args.defaults}")

    def warm_up(self, metrics: dict[str, float], envs, rollouts) -> None:
        """Record the critic's warm-up, and the turns of episodes that go on in the first update."""
        metrics["warmup/env_faults"] = self._log_faults(0, envs)
        self._record("warmup.jsonl", 0, metrics)
        if self.leads:
            write_open_episodes(self.directory, rollouts, self.tokenizer, self.args.log_envs)
        explained = shown(metrics, "warmup/explained_variance_held_out")
        self.say(
            f"critic warm-up: held-out explained variance {explained}  "
            f"({metrics['time/total']:.0f} s)"
        )
        self.console.forget_time()

    def update(self, update: int, rollouts, envs, figures: dict[str, float | None]) -> None:
        """Record update number `update`: its metrics, and the turns of the first environments."""
        metrics = batch_figures(rollouts) | figures
        metrics["rollout/env_faults"] = self._log_faults(update, envs)
        metrics["turns"] = rollouts.episodes.turns + len(rollouts.rows)
        self._record("metrics.jsonl", update, metrics)
        if self.leads:
            write_turns(self.directory, update, rollouts, self.tokenizer, self.args.log_envs)
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
        if line := program_errors_line(rollouts):
            self.say(line)
        if line := self.gap_warning(metrics["engine/logp_gap_mean"]):
            self.say(line)

    def evaluation(self, update: int, figures: dict[str, float], envs, episodes: dict) -> None:
        """Record an evaluation of the policy after `update` updates.

        episodes: name -> a number for each episode
        """
        faults = self._log_faults(update, envs)
        asked = {"asked": True} if self.args.eval_only and self.args.resume else {}
        self._record("eval.jsonl", update, figures | {"eval/env_faults": faults} | asked)
        if self.leads:
            append_records(self.directory / "eval_episodes.jsonl", update, [episodes | asked])
        self.say(
            f"eval after {update} updates: success {figures['eval/success']:.3f} "
            f"[{figures['eval/success_low']:.3f}, {figures['eval/success_high']:.3f}]  "
            f"return {figures['eval/return']:.3f} +- {figures['eval/return_stderr']:.3f}  "
            f"length {figures['eval/episode_len']:.1f}  ({figures['eval/episodes']} episodes, "
            + f"{faults} faults of environments, " * (faults > 0)
            + f"{figures['time/eval']:.0f} s)"
        )
        if line := tasks_line(figures):
            self.say(line)
        if self.leads:
            refresh_card(self.directory)
        self.console.forget_time()

    def evaluation_turns(self, update: int, turns: list) -> None:
        """Write the turns of the first evaluation environments, in order."""
        if self.leads:
            write_evaluation(self.directory, update, turns, self.tokenizer, self.args.log_envs)

    def check_finite(self, update: int, rollouts, agent) -> None:
        """RunError: the numbers of too many steps broke down; the last such turns are written."""
        if agent.skipped_steps > MAX_SKIPPED_STEPS:
            report = self.directory / "non_finite.jsonl"
            if self.leads:
                write_rows(report, update, rollouts, self.tokenizer, agent.skipped_rows)
            raise RunError(
                f"{agent.skipped_steps} optimizer steps had a loss or gradient that is not finite; "
                f"the turns of the last are in {report}, and the checkpoints are whole"
            )

    def _record(self, file: str, update: int, metrics: dict) -> None:
        if self.leads:
            self.records.add(file, update, metrics)

    def _log_faults(self, update: int, envs) -> int:
        """Log the faults of the environments of all ranks, clear them, and return how many.

        Each fault gets a line on the terminal; faults.jsonl has the tracebacks.
        """
        faults = self.ranks.gather(list(envs.faults))
        envs.faults.clear()
        for fault in faults if self.leads else []:
            who = "an idle worker" if fault["env"] is None else f"environment {fault['env']}"
            self.say(f"fault of {who}: {fault['error']}")
        if self.leads and faults:
            append_records(self.directory / "faults.jsonl", update, faults)
        return len(faults)


def tasks_line(figures: dict[str, float]) -> str:
    """Return a line with the success of each task of an evaluation, "" if there is one alone."""
    start = "eval/success/"  # envs.mixture adds these figures
    found = {k.removeprefix(start): x for k, x in figures.items() if k.startswith(start)}
    weakest = sorted(found, key=found.get)
    line = ", ".join(f"{task} {found[task]:.3f}" for task in weakest[:MOST_TASKS])
    more = len(weakest) - MOST_TASKS
    line += f" and {more} better ones in eval.md" * (more > 0)
    return line and f"success by task, weakest first: {line}"


def shown(metrics: dict[str, float | None], name: str, form: str = ".2f") -> str:
    """Return the text of a figure, "-" where it does not exist."""
    value = metrics.get(name)
    return "-" if value is None or math.isnan(value) else format(value, form)


def parameter_count(model) -> int:
    """Count the parameters. ZeRO stage 3 leaves empty ones, which know their whole size."""
    return sum(getattr(p, "ds_numel", p.numel()) for p in model.parameters())
