"""What the critic knows: its values beside the truth, by replay. `turnwise critic RUN`, or

    python -m critic RUN [--episodes K] [--states S] [--continuations M]

For each checkpoint that RUN keeps, the policy plays evaluation episodes. S states of each episode
are reached again by replay, and from each of them the policy plays on M times. What these
continuations earn on average is the truth about the state, up to their noise, for V(s_t) and for
what takes its place in methods without a critic. RUN/critic.md, critic.png and critic.json have it.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing
from functools import reduce
from pathlib import Path
from statistics import fmean

import torch

from arguments import Arguments, get_args
from branch import Branches, places
from common.plugins import UserError
from common.run_file import rewritten
from envs import AGENT
from envs.errors import EnvError
from envs.pool.cursor import CHANGED, ELSEWHERE
from envs.pool.evaluation import all_evaluation_seeds
from envs.pool.serial import digest
from envs.trust import as_flags, foreign, refuse_foreign
from main import collect
from memory.checks import make_render
from ppo.continuations import Start, returns_to_go
from ppo.distributed import make_ranks
from ppo.engines.choose import make_engine
from ppo.make import make_agent
from ppo.model.make import make_model
from reports.critic_page import PICTURE, State, critic_page, points
from reports.drawing import import_figure
from reports.pictures import draw_values
from reports.program import Program
from run.earlier import saved_args
from run.saved import checkpoints, damaged, number_of, read
from run.snapshot import load_snapshot
from storage.batch import Scoring, values_of
from storage.collection import Turn


def main(argv: list[str] | None = None) -> int:
    program = Program(prog="turnwise critic", description="Compare V with what states earn.")
    add = program.add_argument
    add("run", metavar="RUN", type=Path, help="run directory")
    add("--episodes", type=int, metavar="K", default=64, help="evaluation episodes (%(default)s)")
    add("--states", type=int, metavar="S", default=4, help="states of each episode (%(default)s)")
    times = "continuations of each state (%(default)s)"
    add("--continuations", type=int, metavar="M", default=8, help=times)
    add("--trust", action="store_true", help="import the user's own modules that RUN names")
    return program.run(judge, argv)


def judge(options: Namespace) -> None:
    """Judge the critic of each checkpoint, and write the page. UserError: it cannot be judged"""
    for name, least in (("episodes", 2), ("states", 1), ("continuations", 2)):
        if getattr(options, name) < least:
            raise UserError(f"--{name} must be {least} or more, got {getattr(options, name)}")
    args = args_of(options.run, options.trust)
    folders, found = checkpoints(options.run), {}
    if not folders:
        raise UserError(f"{options.run} has no checkpoint yet")
    import_figure()  # before the work: it may be missing
    with closing(Judged(args)) as judged:
        for folder in folders:
            update = number_of(folder)
            judged.load(options.run, folder)
            found[update] = judged.states(options.episodes, options.states, options.continuations)
            print(f"after {update} updates: {len(found[update])} states", flush=True)
    page = critic_page(options.run.name, options, args.gamma_step, found)
    panels = {f"{update} updates": points(states) for update, states in found.items()}
    with rewritten(options.run / PICTURE, "wb") as file:
        file.write(draw_values(panels))
    with rewritten(options.run / "critic.md") as file:
        file.write(page)
    with rewritten(options.run / "critic.json") as file:
        json.dump({update: [vars(state) for state in each] for update, each in found.items()}, file)
    print(page)


def args_of(run: Path, trust: bool) -> Arguments:
    """Return the settings of a run. trust: whether the user's own modules are imported

    UserError: there is no run, it needs `trust`, or its critic cannot be judged
    """
    own = foreign(saved_args(run))
    if own.get("env_name", "").startswith(AGENT):
        raise UserError(
            f"{run} has --env-name agent:...: each state is played on several times, and an "
            "agent's program may act on the world"
        )
    if not trust:
        refuse_foreign(run, own)
    args = get_args(["--resume", str(run), "--eval-only", *as_flags(own)], "turnwise critic")
    if args.update.no_critic:
        raise UserError(f"{run} has no critic: its advantages are {args.advantages}")
    if args.use_proper_time_limits:
        line = "bootstraps at time limits, and no continuation shows what lies beyond"
        raise UserError(f"{run} {line}")
    return args


class Judged:
    """The policy and the critic of a run, and the states that its policy comes to."""

    def __init__(self, args: Arguments):
        self.args, ranks = args, make_ranks(0)
        self.actor_critic, tokenizer, ends = make_model(
            args.generation, args.update, ranks.device, args.seed
        )
        self.agent = make_agent(args.update, self.actor_critic, ranks, args.seed)
        self.render = make_render(args.environment, args.prompt_limit, tokenizer, [], args.resume)
        self.engine = make_engine(
            args.generation, tokenizer, ends, args.n_env, self.actor_critic.dtype, args.seed,
            lora_rank=args.update.lora_rank,
        )  # fmt: skip
        self.scoring = Scoring(args.token_budget, ranks)
        self.branches = Branches(args, places(args, args.n_env), self.engine, self.render, collect)

    def close(self) -> None:
        """End the environments."""
        self.branches.envs.close()

    def load(self, run: Path, folder: Path) -> None:
        """Take the weights of a checkpoint. UserError: it is damaged, or they do not fit"""
        if wrong := damaged(folder):
            raise UserError(f"{folder} is damaged: {wrong}")
        load_snapshot(run, read(folder), {"agent": self.agent})
        self.engine.push_weights(self.actor_critic)

    def states(self, count: int, per_episode: int, times: int) -> list[State]:
        """Return states of `count` evaluation episodes, with what they earn and what is expected.

        A state is left out if faults of environments leave fewer than two of its continuations.
        per_episode: states of each; times: continuations of each
        UserError: episodes cannot be replayed, or faults leave fewer than two of them
        """
        gamma, groups, returns = self.args.gamma_step, {}, {}  # returns: (seed, t) -> of each
        panel = [Start(seed, {}) for seed in all_evaluation_seeds(count)]
        episodes = {start.seed: turns for start, turns in self.play(panel)}
        if not all(turns[0].step.observation.replayable for turns in episodes.values()):
            line = "says that equal responses do not lead to equal states there"
            raise UserError(f"{self.args.env_name} {line}")
        group = [Start(seed, {}, member=1 + m) for seed in episodes for m in range(times)]
        for start, turns in self.play(group):
            groups.setdefault(start.seed, []).append(turns)
        wanted = [
            (seed, turns, t)
            for seed, turns in episodes.items()
            for t in sorted({len(turns) * k // per_episode for k in range(per_episode)})
        ]
        branches = [
            start_at(*state, member=1 + times + k * times + m)
            for k, state in enumerate(wanted)
            for m in range(times)
        ]
        for start, turns in self.play(branches):
            returns.setdefault((start.seed, start.t), []).append(returns_to_go(turns, gamma)[0])
        wanted = [
            (seed, turns, t)
            for seed, turns, t in wanted
            if seed in groups and len(returns.get((seed, t), ())) > 1
        ]
        if len({seed for seed, _, _ in wanted}) < 2:
            last = self.branches.envs.faults[-1]["error"]
            raise EnvError(f"faults leave fewer than 2 of {count} episodes to compare: {last}")
        with torch.no_grad():
            prompts = [turns[t].response.prompt for _, turns, t in wanted]
            values = values_of(prompts, self.actor_critic, self.scoring).tolist()
        ahead = {seed: returns_to_go(turns, gamma) for seed, turns in episodes.items()}
        return [
            State(
                seed, t, len(turns), returns[seed, t],
                {"critic": value} | expected(ahead, groups[seed], seed, turns[t], t, gamma),
            )
            for (seed, turns, t), value in zip(wanted, values, strict=True)
        ]  # fmt: skip

    def play(self, starts: list[Start]) -> Iterator[tuple[Start, list[Turn]]]:
        """Yield each start and the turns of its episode from there on, if no fault cut it.

        UserError: a replay led elsewhere, or faults are too frequent
        """
        left, n_env = [*starts], self.branches.envs.n_env
        while left:
            together = left[:n_env]
            try:
                played = [*self.branches.play(together)]
            except EnvError as error:
                del left[self.lost(error)]
                continue
            del left[:n_env]
            for start, turns in zip(together, played, strict=True):
                if turns:
                    yield start, turns

    def lost(self, error: EnvError) -> int:
        """Return which environment failed on the way to its state, and make all of them anew.

        If none did, or if its replay led elsewhere, the error is raised again.
        """
        envs = self.branches.envs
        failed = [n for n, cursor in enumerate(envs.cursors) if cursor.ended is error]
        if not failed or envs.faults[-1]["error"] in (CHANGED, ELSEWHERE):
            raise error
        envs.close()  # the others are in the middle of their replays
        self.branches.envs = places(self.args, envs.n_env)
        self.branches.envs.faults += envs.faults
        return failed[0]


def start_at(seed: int, turns: list[Turn], t: int, member: int) -> Start:
    """Return a start before turn t (from 0) of an episode.

    The pool notices if the replay leads elsewhere.
    """
    start = reduce(Start.after, turns[:t], Start(seed, {}, member=member))
    if t:
        start.state["shown"] = digest(turns[t].step.previous_text)
    return start


def expected(
    ahead: dict[int, list[float]], group, seed: int, turn: Turn, t: int, gamma: float
) -> dict[str, float]:
    """Return what methods without a critic expect of a state, turn t of the episode of `seed`.

    ahead: seed -> the returns from each turn on, of all episodes that were played
    group: other episodes of this seed
    """
    others = [returns for key, returns in ahead.items() if key != seed]
    alive = [returns[t] for returns in others if len(returns) > t]
    of_group = [returns_to_go(turns, gamma) for turns in group]
    same = [
        returns[k]
        for turns, returns in zip(group, of_group, strict=True)
        for k, other in enumerate(turns)
        if other.step.previous_digest == turn.step.previous_digest
    ]
    starts = [returns[0] for returns in of_group]
    return {
        "mean return at turn t": fmean(alive or [returns[-1] for returns in others]),
        "GRPO's group": fmean(starts),
        "GiGPO's equal states": fmean(same or starts),
    }


if __name__ == "__main__":
    sys.exit(main())
