"""Make the embedded models: tiny Qwen2-architecture language models that play badly.

    python -m models.make --out models/tiny
    python -m models.make --family babaisai-memory --steps 4500 --out models/tiny-babaisai
    python -m models.make --family crafter --steps 4000 --out models/tiny-crafter
    python -m models.make --family calculator --layers 3 --steps 2500 --out models/tiny-calculator
    python -m models.make --family guess --steps 2000 --out models/tiny-guess
    python -m models.make --family shop --steps 1500 --layers 3 --vocab-size 320 \\
        --out models/tiny-shop
    python -m models.make --family frozen-lake --layers 3 --vocab-size 320 \\
        --out models/tiny-frozen-lake
    python -m models.make --family errands --layers 3 --steps 800 --batch 32 --vocab-size 400 \\
        --out models/tiny-errands
    python -m models.make --family summarising --layers 3 --vocab-size 300 \\
        --out models/tiny-summarising

A scripted player (`models.players`) plays episodes, and the model is cloned from its prompts and
responses. The player's thoughts are right but many of its actions are not, which leaves something
for reinforcement learning to teach. The players of `-memory` play better the more turns a prompt
shows. The result is a Hugging Face directory, and the trainer treats it exactly like a 7B model.
"""

import argparse
import importlib
import sys
from pathlib import Path

from common.cli import Parser, end_silently_on_signals, run_printing
from common.errors import RunError
from models.players import PLAYERS


def get_args(argv: list[str] | None) -> argparse.Namespace:
    parser = Parser("models.make", description=__doc__.splitlines()[0])
    flag = parser.add_argument
    flag("--family", choices=PLAYERS, default="babyai-memory", help="the player to clone")
    flag("--out", type=Path, required=True, help="directory of the model")
    flag("--steps", type=int, default=2000, help="optimizer steps; a second lesson has a third")
    flag("--batch", type=int, default=64, help="turns per optimizer step")
    flag("--lr", type=float, default=4e-3, help="peak learning rate; a second lesson has half")
    flag("--hidden", type=int, default=64, help="hidden size, a multiple of 64")
    flag("--layers", type=int, default=2, help="number of decoder layers")
    flag("--vocab-size", type=int, default=640, help="learnt tokens; those of passages are added")
    flag("--seed", type=int, default=1, help="seed of all random numbers")
    args = parser.parse_args(argv)
    if args.hidden % 64 or args.hidden < 64:
        parser.error(f"--hidden must be a multiple of 64, got {args.hidden}")
    try:
        importlib.import_module(PLAYERS[args.family])
    except ValueError as error:  # the environment's library is not installed
        parser.error(str(error))
    return args


def main(argv: list[str] | None = None) -> int:
    args = get_args(argv)
    from models.embedded import make_model  # imported here: --help need not wait for torch

    try:
        return run_printing(lambda: make_model(args), "models.make")
    except RunError as error:
        print(f"models.make: error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    end_silently_on_signals()
    sys.exit(main())
