"""Draws which turn of an episode got which reward and which advantage.

    python -m reports.credit RUN                     the last whole episode of the log (--log-envs)
    python -m reports.credit RUN --env 3 --episode 2

Turns stand in the order in which they were answered, each in the row of its agent. Agents of a
program are told apart by how their prompts begin.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from common.plugins import UserError
from common.run_file import rewritten
from reports import dialogue
from reports.pictures import draw_credit
from reports.program import Program
from run.dialogue_log import LoggedEpisode, episodes_of, read_log

PICTURE = "credit.png"
BEGINNING = 60  # characters of a prompt, without marks, that tell agents apart
MARKS = re.compile(r"<\|[^|>]*\|>|</?s>|\[/?INST\]")


@dataclass(frozen=True)
class CreditedTurn:
    """A turn as the picture shows it.

    agent: how its prompt begins; update: in which it was trained
    value: V before its first token; advantage: the mean over its tokens
    """

    agent: str
    update: int
    reward: float
    value: float | None
    advantage: float


def main(argv: list[str] | None = None) -> int:
    program = Program(prog="reports.credit", description=__doc__.splitlines()[0])
    add = program.add_argument
    add("run", type=Path, metavar="RUN", help="run directory")
    add("--env", type=int, help="only episodes of this environment")
    add("--episode", type=int, help="only the episode of this number")
    add("--out", type=Path, metavar="FILE", help=f"default: RUN/{PICTURE}")
    return program.run(draw, argv)


def draw(args: argparse.Namespace) -> None:
    logged = episodes_of(read_log(args.run, False))
    logged = dialogue.filter_episodes(logged, env=args.env, number=args.episode)
    whole = [episode for episode in logged if episode.outcome != "unfinished"]
    if not whole:
        raise UserError(f"no finished episode in the log of {args.run} (--log-envs logs more)")
    episode = max(whole, key=lambda each: each.updates)
    out = args.out or args.run / PICTURE
    title = f"environment {episode.env}, episode {episode.number}: {episode.outcome}"
    with rewritten(out, "wb") as file:
        file.write(draw_credit(credited_turns(episode), title))
    print(f"{title}; the picture: {out}")


def credited_turns(episode: LoggedEpisode) -> list[CreditedTurn]:
    """Return the turns of an episode, from the first to the last."""
    return [
        CreditedTurn(
            agent=beginning(turn["prompt"]),
            update=turn["update"],
            reward=turn["reward"],
            value=next(iter(turn["values"]), None),
            advantage=fmean([x for x in turn["advantages"] if x is not None] or [0.0]),
        )
        for turn in episode.turns
    ]


def beginning(prompt: str) -> str:
    """Return the first words of a prompt, without the marks of chat templates."""
    words = dialogue.escape_hidden(MARKS.sub(" ", prompt)).split()
    return " ".join(words[words[:1] == ["system"] :])[:BEGINNING]


if __name__ == "__main__":
    sys.exit(main())
