"""The run around the algorithm: its directory, checkpoints, logs, progress, signals and ranks.

`with Run(args, ranks) as run:` owns the directory until the block ends. main.py tells it
where a phase begins and ends and what to log; nothing in here computes what is trained.
"""

import shlex
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import ExitStack, contextmanager

from common.cli import command
from common.errors import OtherRankFailed, RanksApart, RunError
from run.checkpoint import Checkpoints
from run.checks import check_shares
from run.dead_ranks import Peers
from run.describe import write_args
from run.directory import claimed_run_dir
from run.exit import is_check, one_line
from run.logger import Logger
from run.logs import cut_back, later_evaluations
from run.out_of_memory import PHASES, explained
from run.stop import Signals, StoppablePool, StoppableRanks, Stopped
from run.timer import Timer

STOPPABLE = ("collect", "warmup")  # phases that a signal ends outside of a `checkpoint` block, too


class Run:
    """A run from its claim of a directory to its last line.

    ranks: those of the run; exit_code: of the program, after the block
    UserError: the ranks cannot share a batch evenly, or as `run.directory.claimed_run_dir`
    """

    def __init__(self, args, ranks):
        check_shares(args, ranks.size)
        self.args, self.signals = args, Signals()
        self.ranks = StoppableRanks(ranks, self.signals)
        self.cleanup, self.logger, self.exit_code = ExitStack(), None, 0

    def __enter__(self) -> "Run":
        with ExitStack() as cleanup:  # whatever was claimed is given back if the rest fails
            cleanup.enter_context(Peers(self.ranks))
            self.directory = cleanup.enter_context(claimed_run_dir(self.args, self.ranks))
            self.checkpoints = Checkpoints(self.args, self.directory, self.ranks)
            self.finished = self.checkpoints.finished()
            self.cleanup = cleanup.pop_all()
        return self

    def __exit__(self, kind, error, trace) -> bool:
        """End the run; Stopped becomes an exit code."""
        if isinstance(error, Stopped):
            self.exit_code = 128 + error.number
        if self.logger and (error is None or isinstance(error, Stopped)):
            self._say_goodbye(error)
        return self.cleanup.__exit__(kind, error, trace) or isinstance(error, Stopped)

    # ---- before the loop --------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether this rank writes the files of the run."""
        return self.ranks.rank == 0

    def restore(self, **parts) -> int:
        """Load the checkpoint that the run continues from into `parts`, which its checkpoints hold.

        Returns the number of updates that were made. UserError: the state does not fit the parts
        """
        return self.checkpoints.restore(**parts)

    @property
    def share(self) -> range:
        """The environments that this rank plays."""
        return self.ranks.share(self.args.n_env)

    @property
    def env_states(self) -> list[dict] | None:
        """The states of this rank's environments in that checkpoint; None: they begin anew."""
        return self.checkpoints.env_states()

    @property
    def warms_up(self) -> bool:
        """Whether the critic is trained before the first update."""
        resumed = self.checkpoints.origin.resumed
        return bool(self.args.w_epoch) and not (resumed or self.args.eval_only)

    def pool(self, envs) -> StoppablePool:
        """Return the environments as a context: it closes them, and a signal ends their `poll`."""
        return StoppablePool(envs, self.ranks)

    def keep(self, context):
        """Enter a context that ends with the run."""
        return self.cleanup.enter_context(context)

    def begin(self, actor_critic, engine, tokenizer) -> None:
        """Write the first files and lines; from here on a signal ends the run with a checkpoint.

        UserError: a log of a resumed run has lost lines
        """
        args, origin = self.args, self.checkpoints.origin
        self.ranks.serve = getattr(engine, "serve_others", self.ranks.serve)
        self.ranks.wait()  # all ranks have read their checkpoint
        if self.leads:
            if args.resume and not args.eval_only:
                kept = {}
                if origin.resumed:
                    kept = later_evaluations(self.directory, args, origin.update, origin.logs)
                cut_back(self.directory, origin.logs, kept)
            write_args(self.directory, args)
        self.tokenizer = tokenizer
        self.logger = Logger(args, self.directory, origin.update, tokenizer, self.ranks)
        self.say = self.logger.say
        self.timer = Timer(self.logger.console)
        self.keep(self.signals)
        self.logger.describe(actor_critic, engine)

    # ---- the loop ---------------------------------------------------------------------------

    @contextmanager
    def phase(self, name: str, progress: Callable[[], float] | None = None, about: str = ""):
        """Measure a phase and show it on a terminal.

        progress: returns how far it is, from 0 to 1; about: a line that announces it
        """
        if about:
            self.say(f"{about} ...")
        with ExitStack() as stack:
            if name in STOPPABLE and not self.ranks.listens:
                stack.enter_context(self.ranks.listening())
            stack.enter_context(self.timer(name, progress))
            stack.enter_context(explained(self.args, PHASES[name]))
            yield

    @contextmanager
    def checkpoint(self, update: int, envs):
        """Save the state after `update` updates if it is due, or if what happens inside breaks off.

        RunError: a check of this project failed inside; the line says how the run continues
        """
        self.checkpoints.mark(update, envs)
        if self.checkpoints.due():
            self.checkpoints.save(self.tokenizer)
        try:
            with self.ranks.listening():
                self.ranks.wait()  # a signal since the last batch becomes known to all ranks
                yield
        except RanksApart:  # a save would wait for all
            raise
        except OtherRankFailed:
            self._save_marked()
            raise
        except (Exception, CancelledError) as error:
            if self._save_marked() and is_check(error):
                again = f"saved; go on with: {self._resume_command()}"
                raise RunError(f"{one_line(error)}; {again}") from error
            raise

    def _save_marked(self) -> bool:
        """Save what was marked, if a run saves at all. Returns whether it does."""
        if not self.args.eval_only:
            self.checkpoints.save(self.tokenizer)
        self.checkpoints.save_faults()
        return not self.args.eval_only

    def complete(self, update: int) -> bool:
        """Return whether no update follows the first `update` ones."""
        return self.args.eval_only or self.checkpoints.complete(update)

    def evaluates(self, update: int) -> bool:
        """Return whether the policy is evaluated after `update` updates."""
        args = self.args
        if args.eval_only or not args.eval_interval:
            return args.eval_only
        first = update == 0 and args.eval_interval > args.num_updates
        return self.complete(update) or (update % args.eval_interval == 0 and not first)

    # ---- logs -------------------------------------------------------------------------------

    def log_warm_up(self, rollouts, envs, figures: dict[str, float]) -> None:
        """Log the critic's warm-up and its times."""
        self.logger.warm_up(figures | self.timer.lap(), envs, rollouts)

    def log(self, update: int, rollouts, envs, agent, figures: dict[str, float | None]) -> None:
        """Log update number `update` and its times. RunError: too many steps were not finite"""
        self.logger.check_finite(update, rollouts, agent)
        self.logger.update(update, rollouts, envs, figures | self.timer.lap())

    def log_evaluation(self, update: int, envs, figures: dict[str, float], episodes: dict) -> None:
        """Log an evaluation of the policy after `update` updates: its figures, its times, and the
        outcome of each episode."""
        temperature = {"eval/temperature": self.args.temperature}
        self.logger.evaluation(update, figures | temperature | self.timer.lap(), envs, episodes)

    # ---- the end ----------------------------------------------------------------------------

    def _resume_command(self) -> str:
        return f"{command('python main.py')} --resume {shlex.quote(str(self.directory))}"

    def _say_goodbye(self, stopped: Stopped | None) -> None:
        """Print where the model is, or how a run that was stopped continues."""
        if stopped and not self.args.eval_only:
            saved = self.checkpoints.marked is not None
            result = "saved; go on" if saved else "nothing to save yet; begin again"
            self.say(f"{stopped}: {result} with: {self._resume_command()}")
        elif not self.args.eval_only:
            self.say(f"trained model: {self.directory / 'model'}")
        self.ranks.wait()
