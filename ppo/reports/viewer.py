"""Reads the dialogue log: one HTML file, the same in the terminal, or an episode as a GIF.

    python -m ppo.reports.viewer RUN                             writes RUN/trajectories.html
    python -m ppo.reports.viewer RUN --frames                    with a picture of every turn
    python -m ppo.reports.viewer RUN --env 1                     prints environment 1's episodes
    python -m ppo.reports.viewer RUN --env 1 --episode 7 --gif   writes RUN/env-1-episode-7.gif

The page is viewer.html, with the data put in; pictures are left to `replay`. What the model
wrote is shown, never interpreted: control characters are written out, and the page sets text only.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from ppo.engines.contract import action_token
from ppo.reports.dialogue import SCORES, Episode, bounds, read, select, shown, split

TEMPLATE = Path(__file__).with_name("viewer.html")


# ---- the page -----------------------------------------------------------------------------------


def page(run: Path, episodes: list[Episode], frames: dict | None = None) -> str:
    """The HTML. frames: (env, episode) -> data URIs, before each turn and after the last."""
    frames = frames or {}
    uris = list(dict.fromkeys(uri for uris in frames.values() for uri in uris))
    at = {uri: k for k, uri in enumerate(uris)}  # a picture is stored once
    data = {
        "run": shown(run.resolve().name),
        "bounds": bounds(episodes),
        "uris": uris,
        "episodes": [
            _summary(episode)
            | {"turns": [_turn(turn) for turn in episode.turns]}
            | {"frames": [at[uri] for uri in frames.get((episode.env, episode.number), [])]}
            for episode in episodes
        ],
    }
    # ASCII, and without "<": nothing in it can end the script element that holds it
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return TEMPLATE.read_text(encoding="utf-8").replace("@DATA@", text)


def _summary(episode: Episode) -> dict:
    names = "env number seed length ret invalid updates missing outcome"
    return {name: getattr(episode, name) for name in names.split()}


def _turn(turn: dict) -> dict:
    names = "step update valid reward response_truncated prompt_overflow logps"
    tokens = "".join(turn["tokens"])
    return {name: turn[name] for name in (*names.split(), *SCORES)} | {
        "prompt": shown(turn["prompt"]),
        "tokens": [shown(piece) for piece in turn["tokens"]],
        # a character may be made of several tokens, and then they do not show it
        "text": "" if tokens.startswith(turn["response"]) else shown(turn["response"]),
        "split": action_token(turn["tokens"], turn["response"], turn["action_at"]),
        "action": shown(turn["action"]),
        "fault": shown(turn["fault"]),
    }


# ---- the terminal -------------------------------------------------------------------------------

# backgrounds of the 256 colours, from 0 outwards, under black letters
BELOW, ABOVE = (230, 223, 216, 215, 208), (195, 159, 117, 81, 75)


def describe(episodes: list[Episode], prompts: bool, colour: str):
    """Yields the lines: a list of the episodes, then each of them turn by turn."""
    bound = bounds(episodes).get(colour)
    yield from map(_headline, episodes)
    for episode in episodes:
        yield f"\n==== {_headline(episode)}"
        for turn in episode.turns:
            yield from _turn_lines(turn, prompts, colour, bound)


def _headline(episode: Episode) -> str:
    parts = [
        f"env {episode.env} episode {episode.number}",
        episode.outcome,
        f"{episode.length} turns",
        f"return {episode.ret:+.2f}",
        f"{episode.invalid} invalid",
        "updates {}-{}".format(*episode.updates),
        f"seed {episode.seed}",
    ]
    return "  ".join(parts + [f"{episode.missing} turns missing"] * (episode.missing > 0))


def _turn_lines(turn: dict, prompts: bool, colour: str, bound: float | None):
    marks = ["valid" if turn["valid"] else "INVALID", f"reward {turn['reward']:+.2f}"]
    for name, letter in zip(SCORES, ("A", "V", "KL"), strict=True):
        known = [x for x in turn[name] if x is not None]
        marks += [f"{letter} {sum(known) / len(known):+.3f}"] if known else []
    marks += ["cut off at the response limit"] * turn["response_truncated"]
    marks += ["prompt over the limit"] * turn["prompt_overflow"]
    yield f"\n-- turn {turn['step']}  update {turn['update']}  " + "  ".join(marks)
    if prompts:
        yield from ("   | " + line for line in shown(turn["prompt"]).split("\n"))
    if bound is None:
        yield shown(turn["response"])
    else:
        pairs = zip(turn["tokens"], turn[colour], strict=True)
        yield "".join(_painted(shown(piece), x, bound) for piece, x in pairs)
    yield f"   fault: {shown(turn['fault'])}" if turn["fault"] else f"   -> {shown(turn['action'])}"


def _painted(piece: str, x: float | None, bound: float) -> str:
    level = min(int(5 * abs(x or 0) / bound + 0.5), 5)
    if level == 0:
        return piece
    code = (ABOVE if x > 0 else BELOW)[level - 1]
    start, end = f"\x1b[38;5;16;48;5;{code}m", "\x1b[0m"
    return start + piece.replace("\n", f"{end}\n{start}") + end


# ---- the command --------------------------------------------------------------------------------


def get_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ppo.reports.viewer", description="Look at the dialogues of a run."
    )
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="the --run-dir of a run")
    add("--env", type=int, help="print this environment's episodes; with --out or --frames: a page")
    add("--episode", type=int, help="only the one of this number (as in the list)")
    add("--updates", type=int, nargs=2, metavar=("FIRST", "LAST"), help="only of these updates")
    add("--failures", action="store_true", help="only episodes that ended without success")
    add("--invalid", action="store_true", help="only episodes with an invalid action")
    add("--longest", action="store_true", help="the longest first")
    add("--prompts", action="store_true", help="print the prompts, too")
    add("--color", choices=(*SCORES, "none"), help="what colours printed tokens")
    add("--frames", action="store_true", help="play the episodes again for a picture of each turn")
    add("--gif", action="store_true", help="write the episode --env --episode as a GIF")
    add("--out", type=Path, help="where to write (default: into RUN)")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = get_args(argv)
    try:
        view(args)
    except (ValueError, OSError) as error:
        print(f"ppo.reports.viewer: error: {error}", file=sys.stderr)
        return 2
    return 0


def view(args: argparse.Namespace) -> None:
    logged = split(read(args.run))
    episodes = select(
        logged, args.env, args.episode, args.updates, args.failures, args.invalid, args.longest
    )
    if not episodes:
        numbers = lambda env: [e.number for e in logged if e.env == env]
        held = {
            n: f"{min(numbers(n))} to {max(numbers(n))}" for n in sorted({e.env for e in logged})
        }
        there = "; ".join(f"environment {n}: episodes {span}" for n, span in held.items())
        raise ValueError(f"no episode of {args.run} is like that; it holds {there} (--log-envs)")
    if args.gif:
        write_gif(args, episodes)
    elif args.env is not None and not (args.out or args.frames):
        print_all(describe(episodes, args.prompts, args.color or default_colour()))
    else:
        write_page(args, episodes)


def write_page(args: argparse.Namespace, episodes: list[Episode]) -> None:
    out = args.out or args.run / "trajectories.html"
    frames = {}
    if args.frames:
        from ppo.reports.replay import data_uris

        frames = data_uris(args.run, episodes)
    out.write_text(page(args.run, episodes, frames), encoding="utf-8")
    turns = sum(episode.length for episode in episodes)
    print(f"{out}: {len(episodes)} episodes, {turns} turns, {out.stat().st_size / 1e6:.1f} MB")


def write_gif(args: argparse.Namespace, episodes: list[Episode]) -> None:
    from ppo.reports.replay import save_gif

    if len(episodes) > 1:
        raise ValueError("--gif is of one episode: name it with --env and --episode")
    [episode] = episodes
    out = args.out or args.run / f"env-{episode.env}-episode-{episode.number}.gif"
    save_gif(out, args.run, episode)
    print(f"{out}: {episode.length} turns")


def default_colour() -> str:
    coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return SCORES[0] if coloured else "none"


def print_all(lines, say: Callable = print) -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` is no error
    sys.stdout.reconfigure(errors="backslashreplace")
    for line in lines:
        say(line)


if __name__ == "__main__":
    sys.exit(main())
