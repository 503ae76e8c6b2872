"""The directory of a clone: its settings, its state while it is made, the model and its card."""

import glob
import json
import shlex
from dataclasses import asdict
from pathlib import Path

from common.plugins import UserError
from run.files import recover, write_text, written_aside

CARD_FILE = "README.md"
SETTINGS = "clone.json"
STATE = "state"  # a folder that is there until the model is written
UNSCORED = "unscored.json"  # what `add_scores` needs; there until the scores are in the card

CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
tags:
- turnwise-ppo
---

# A clone of demonstrations

`{model}` was trained to imitate {turns} (supervised, {steps} steps of {batch} turns, learning rate
{lr}, seed {seed}). It is a starting point for PPO with turnwise-ppo, not a good player:

    python main.py --env-name NAME --model THIS
"""
SCORES = """
| | |
|---|---|
| before | {before} |
| after | {after} |

The evaluations: `python main.py --eval-only {flags}`
"""


def settings_of(args) -> dict:
    """Return what is written to SETTINGS: a clone goes on only with equal settings.

    args: a `models.clone.Cloning`, here and below
    """
    return json.loads(json.dumps(asdict(args), default=str))


def settings_text(args) -> str:
    return json.dumps(settings_of(args), indent=2) + "\n"


def check_out(args) -> None:
    """UserError: --out holds something else than this very clone, begun and not complete"""
    out, settings = args.out, args.out / SETTINGS
    if not out.exists():
        return
    others = not out.is_dir() or {path.name for path in out.iterdir()} - {f"{SETTINGS}.tmp"}
    if others and not settings.is_file():
        raise UserError(f"--out {out} is not empty; name another directory")
    if settings.is_file():
        began = json.loads(settings.read_text(encoding="utf-8"))
        changed = [name for name, value in settings_of(args).items() if began.get(name) != value]
        if changed:
            raise UserError(
                f"{out} was begun with another {', '.join(changed)}; name another --out"
            )
        begun = (out / STATE).is_dir() or (out / UNSCORED).is_file()
        if not begun and (out / "config.json").is_file():
            recover(out.parent, glob.escape(out.name))
            raise UserError(f"{out} is complete; name another --out")


def save(args, work, ranks, before: str) -> None:
    """Write the state, so that the same command goes on from here."""
    import torch

    if ranks.rank == 0:
        args.out.mkdir(parents=True, exist_ok=True)
        # The settings come first: they say whose directory this is.
        write_text(args.out / SETTINGS, settings_text(args))
    with written_aside(args.out / STATE, ranks) as aside:
        work.stepper.save(aside)
        state = work.state_dict()  # on all ranks: shards are gathered
        if ranks.rank == 0:
            torch.save(state | {"before": before}, aside / "state.pt")


def load(folder: Path, work) -> str:
    """Go on from a saved state, if there is one. Returns what it says of the initial model."""
    import torch

    if (folder / "state.pt").is_file():
        state = torch.load(folder / "state.pt", map_location="cpu", weights_only=True)
        work.load_state_dict(state, folder)
        print(f"{folder.parent} goes on after step {work.step}")
        return state["before"]
    return ""


def write_model(args, actor, tokenizer, ranks, before: str, flags: list[str]) -> None:
    """Write the model and its card in the place of --out, and of the state in it.

    before, flags: as those of `add_scores`; without flags there are no evaluations
    """
    with written_aside(args.out, ranks) as aside:
        actor.export(aside, ranks.rank == 0)
        if ranks.rank == 0:
            tokenizer.save_pretrained(aside)
            (aside / CARD_FILE).write_text(CARD.format(**settings_of(args)), encoding="utf-8")
            (aside / SETTINGS).write_text(settings_text(args), encoding="utf-8")
            if flags:
                unscored = json.dumps({"before": before, "flags": flags})
                (aside / UNSCORED).write_text(unscored, encoding="utf-8")


def add_scores(args, before: str, after: str, flags: list[str]) -> None:
    """Add to the card what the evaluations said. flags: of main.py for them"""
    shown = SCORES.format(before=before, after=after, flags=shlex.join(flags))
    write_text(args.out / CARD_FILE, CARD.format(**settings_of(args)) + shown)
    (args.out / UNSCORED).unlink()
