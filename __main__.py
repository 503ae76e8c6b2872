"""The command `turnwise`: short names for the programs of this project.

    turnwise train --env-name babyai-goto
    turnwise evaluate runs/RUN

`pip install .` puts the trainer, laid out as it is, into one folder `turnwise`. So the
rooms (envs, memory, ...) take no names that a user's own modules may have. This file puts that
folder, or the repository after `pip install -e .`, on the path of the program that it starts.
"""

import os
import signal
import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

HOME = Path(__file__).resolve().parent
COMMANDS = {  # name -> "module:function", the flags that come first, and what the command does
    "envs": ("envs.__main__:main", [], "list the environments"),
    "train": ("main:program", [], "train, as `python main.py` does"),
    "evaluate": ("main:program", ["--eval-only"], "evaluate a RUN, or any --model"),
    "report": ("reports.curves:main", [], "draw the learning curves of runs"),
    "failures": ("reports.failures:main", [], "group the failed episodes of a run"),
    "view": ("reports.viewer:main", [], "show what the model of a run said"),
    "reproduce": ("paper.reproduce:main", [], "make a table or a figure of the paper"),
    "recipe": ("arguments:main", [], "print all settings of a run, as a command line"),
    "fit": ("run.fit.__main__:main", [], "estimate whether a run fits into memory"),
    "push": ("reports.push:main", [], "push a run's model to the Hugging Face hub"),
    "serve": ("reports.serve:main", [], "serve a run's model to agents"),
}


def main() -> int:
    """Run the command that is typed, and return its exit code."""
    name, *words = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # for `| head`
        print(usage())
        return 0
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"choices: {', '.join(COMMANDS)}"
        print(f"turnwise: error: unknown command {name!r}; {hint}", file=sys.stderr)
        return 2
    place, flags, _ = COMMANDS[name]
    if name == "evaluate" and words and not words[0].startswith("-"):
        flags = [*flags, "--resume"]
    sys.argv = [f"turnwise {name}", *flags, *words]  # what messages call the program
    sys.path.insert(0, str(HOME))
    sys.path.append(os.getcwd())  # for modules of the user's own
    module, _, function = place.partition(":")
    if module == "main":  # --help and a mistake are answered before main's slow imports
        import_module("arguments").get_args()
    return getattr(import_module(module), function)()


def usage() -> str:
    rows = [f"  {name:<11} {does}" for name, (_, _, does) in COMMANDS.items()]
    return "\n".join(["usage: turnwise COMMAND ...", "", *rows, "", "Each has its own --help."])


if __name__ == "__main__":
    sys.exit(main())
