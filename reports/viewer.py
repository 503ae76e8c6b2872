"""Shows the dialogue log of a run as an HTML page, in the terminal, or as a GIF of one episode.

    python -m reports.viewer RUN                             writes RUN/trajectories.html
    python -m reports.viewer RUN --evaluation                the last --eval-only instead
    python -m reports.viewer RUN --frames                    with an image of every turn
    python -m reports.viewer RUN --env 1                     prints environment 1's episodes
    python -m reports.viewer RUN --env 1 --episode 7 --gif   writes RUN/env-1-episode-7.gif

The page is viewer.html with the data inserted. `transcript` prints episodes, and `replay` renders
images. Model output is never interpreted: control characters are escaped, and the page inserts all
text as textContent.
"""

import argparse
import json
import os
import re
import sys
from pathlib import Path

from common.plugins import UserError
from common.run_file import rewritten
from reports import dialogue
from reports.dialogue import escape_hidden
from reports.exchange import LoggedMessage, messages_of, parts_of
from reports.notes import note_changes
from reports.program import Program
from reports.run_files import facts_of
from reports.transcript import transcript_lines
from run.dialogue_log import (
    EVALUATION_LOG,
    TRAINING_LOG,
    LoggedEpisode,
    episodes_of,
    read_log,
)
from run.logged_turn import SCORES

TEMPLATE = Path(__file__).with_name("viewer.html")
# Fields of a logged turn that the page gets unchanged, besides SCORES
COPIED = (
    "step", "update", "valid", "reward", "response_truncated", "prompt_overflow", "logps",
)  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    program = Program(prog="reports.viewer", description="Show the dialogues of a run.")
    add = program.add_argument
    add("run", type=Path, metavar="RUN", help="run directory")
    add("--evaluation", action="store_true", help="show the last --eval-only")
    add("--env", type=int, help="only this environment; without --out and --frames it is printed")
    add("--episode", type=int, help="only episodes with this number in their environment")
    span = ("FIRST", "LAST")
    add("--updates", type=int, nargs=2, metavar=span, help="only episodes of these updates")
    add("--failures", action="store_true", help="only episodes that ended without success")
    add("--invalid", action="store_true", help="only episodes with an invalid action")
    add("--longest", action="store_true", help="show the longest episodes first")
    add("--prompts", action="store_true", help="print the prompts as well")
    add("--color", choices=(*SCORES, "none"), help="score that colours printed tokens")
    add("--frames", action="store_true", help="replay the episodes and show an image of each turn")
    add("--gif", action="store_true", help="write the episode (--env, --episode) as a GIF")
    add("--trust", action="store_true", help="let --frames and --gif import what RUN names")
    add("--out", type=Path, help="output file (default: in RUN)")
    return program.run(view, argv)


def view(args: argparse.Namespace) -> None:
    logged = episodes_of(read_log(args.run, args.evaluation))
    episodes = dialogue.filter_episodes(
        logged, args.env, args.episode, args.updates, args.failures, args.invalid, args.longest
    )
    if not episodes:
        numbers = {}
        for episode in logged:
            numbers.setdefault(episode.env, []).append(episode.number)
        spans = [f"environment {n}: episodes {k[0]} to {k[-1]}" for n, k in numbers.items()]
        raise UserError(
            f"no episode of {args.run} matches; its log has {'; '.join(spans)} (--log-envs)"
        )
    if args.gif:
        write_gif(args, episodes)
    elif args.env is not None and not (args.out or args.frames):
        coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        colour = args.color or (SCORES[0] if coloured else "none")
        for line in transcript_lines(episodes, args.prompts, colour):
            print(line)
    else:
        write_dialogue_page(args, episodes)


def write_dialogue_page(args: argparse.Namespace, episodes: list[LoggedEpisode]) -> None:
    name = EVALUATION_LOG if args.evaluation else TRAINING_LOG
    out = args.out or (args.run / name).with_suffix(".html")
    if args.frames:
        from reports.replay import data_uris  # imports PIL and the environments
    frames = data_uris(args.run, episodes, args.trust) if args.frames else {}
    page = dialogue_page(args.run, episodes, frames)
    with rewritten(out, encoding="utf-8") as file:
        file.write(page)
    turns = sum(episode.length for episode in episodes)
    print(f"{out}: {len(episodes)} episodes, {turns} turns, {out.stat().st_size / 1e6:.1f} MB")


def write_gif(args: argparse.Namespace, episodes: list[LoggedEpisode]) -> None:
    from reports.replay import save_gif

    if len(episodes) > 1:
        raise UserError("--gif writes one episode: choose it with --env and --episode")
    [episode] = episodes
    name = f"{'eval-' * args.evaluation}env-{episode.env}-episode-{episode.number}.gif"
    out = args.out or args.run / name
    save_gif(out, args.run, episode, args.trust)
    print(f"{out}: {episode.length} turns")


def dialogue_page(run: Path, episodes: list[LoggedEpisode], frames: dict) -> str:
    """Return the HTML. frames: (env, episode) -> data URIs, before each turn and after the last."""
    uris = list(dict.fromkeys(uri for uris in frames.values() for uri in uris))
    index = {uri: k for k, uri in enumerate(uris)}  # equal images are stored once
    turns = [_turns_data(episode.turns) for episode in episodes]
    labels = {label for each in turns for turn in each for label, _ in turn["parts"]}
    data = {
        "run": escape_hidden(run.resolve().name),
        "about": [(name, escape_hidden(value)) for name, value in facts_of(run)],
        "bounds": dialogue.colour_bounds(episodes),
        "uris": uris,
        "reasons": "REASONING" in labels,
        "episodes": [
            {name: value for name, value in vars(episode).items() if name != "turns"}
            | {"frames": [index[uri] for uri in frames.get((episode.env, episode.number), [])]}
            for episode in episodes
        ],
    }
    parts = {"DATA": _script_text(data), "TURNS": "\n".join(map(_turns_script, turns))}
    template = TEMPLATE.read_text(encoding="utf-8")
    return re.sub("@(DATA|TURNS)@", lambda found: parts[found[1]], template)


def _turns_script(turns: list[dict]) -> str:
    return f'<script type="application/json" class="turns">{_script_text(turns)}</script>'


def _script_text(data) -> str:
    """Return JSON in ASCII without "<", so that nothing in it can close the script element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _turns_data(turns: list[dict]) -> list[dict]:
    data = [_turn_data(turn) for turn in turns]
    for turn, changes in zip(data, note_changes(turns), strict=True):
        if changes:  # few runs have notes
            turn["notes"] = [(kind, escape_hidden(words)) for kind, words in changes]
    return data


def _turn_data(turn: dict) -> dict:
    tokens = "".join(turn["tokens"])
    # with messages, the previous turn already shows the observation, except in the first turn
    sees = turn.get("observation", "") if turn["step"] == 1 or not turn.get("reply") else ""
    return {name: turn[name] for name in (*COPIED, *SCORES)} | {
        "sees": escape_hidden(sees),
        "prompt": escape_hidden(turn["prompt"]),
        "tokens": [escape_hidden(piece) for piece in turn["tokens"]],
        # tokens that split a character do not show it, so the page adds the whole text
        "text": "" if tokens.startswith(turn["response"]) else escape_hidden(turn["response"]),
        "parts": [(part.label, part.end) for part in parts_of(turn)],
        # with messages, these show the action
        "action": None if turn.get("reply") else escape_hidden(turn["action"]),
        "messages": [_message_data(message) for message in messages_of(turn)],
        "fault": escape_hidden(turn["fault"]),
    }


def _message_data(message: LoggedMessage) -> dict:
    texts = {name: escape_hidden(getattr(message, name)) for name in ("kind", "name", "text")}
    return texts | {"failed": message.failed}


if __name__ == "__main__":
    sys.exit(main())
