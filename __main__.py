"""The command `turnwise`: short names for the programs of this project.

    turnwise train --env-name babyai-goto
    turnwise evaluate runs/RUN

`pip install .` copies the repository's folders into one package `turnwise`, so that `envs`,
`memory` and the others do not hide a user's modules of the same names. This file puts that package,
or the repository after `pip install -e .`, on the import path of the program that it starts.
"""

import os
import signal
import sys
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

HOME = Path(__file__).resolve().parent
COMMANDS = {  # name -> "module:function", the flags that come first, and what the command does
    "envs": ("envs.__main__:main", [], "list the environments"),
    "train": ("main:program", [], "train, as `python main.py` does"),
    "evaluate": ("main:program", ["--eval-only"], "evaluate a RUN, or any --model"),
    "report": ("reports.curves:main", [], "draw the learning curves of runs"),
    "sweep": ("sweep:main", [], "make the runs of a grid with seeds, and compare them"),
    "diff": ("reports.diff:main", [], "compare two runs: flags, figures, the same episodes"),
    "critic": ("critic:main", [], "compare the values of a run's critic with what states earn"),
    "failures": ("reports.failures:main", [], "group the failed episodes of a run"),
    "view": ("reports.viewer:main", [], "show the responses of a run's model"),
    "check": ("reports.check:main", [], "check the files of a run"),
    "reproduce": ("paper.reproduce:main", [], "make a table or a figure of the paper"),
    "fetch": ("models.fetch:main", [], "fetch a real language model of 135 M parameters"),
    "clone": ("models.clone:main", [], "imitate demonstrations: a warm start for PPO"),
    "recipe": ("arguments:main", [], "print all settings of a run, as a command line"),
    "doctor": ("doctor:main", [], "check this machine before the first run"),
    "fit": ("fit:main", [], "estimate whether a run fits into memory"),
    "push": ("reports.push:main", [], "push a run's model to the Hugging Face hub"),
    "serve": ("reports.serve:main", [], "serve a run's model to agents"),
}


def main() -> int:
    """Run the command on the command line and return its exit code."""
    name, *words = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # for `| head`
        sys.path.insert(0, str(HOME))
        from common.cli import run_printing

        return run_printing(lambda: print(usage()), "turnwise")
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"choices: {', '.join(COMMANDS)}"
        print(f"turnwise: error: unknown command {name!r}; {hint}", file=sys.stderr)
        return 2
    target, flags, _ = COMMANDS[name]
    if name == "evaluate" and words and not words[0].startswith("-"):
        flags = [*flags, "--resume"]
    sys.argv = [f"turnwise {name}", *flags, *words]  # messages show sys.argv[0]
    sys.path.insert(0, str(HOME))
    sys.path.append(os.getcwd())  # for modules of the user's own
    if name == "evaluate" and "--trust" in words:
        sys.argv = typed_for(Path(words[0]), sys.argv)
    module, _, function = target.partition(":")
    if module == "main":  # parse before main's slow imports, so that --help and mistakes are fast
        import_module("arguments").get_args()
    return getattr(import_module(module), function)()


def typed_for(run: Path, words: list[str]) -> list[str]:
    """Return a command line in which --trust is replaced by the flags that only a trusted run may
    decide: its own modules and its upstream."""
    from common.plugins import UserError
    from envs.trust import as_flags, foreign
    from run.earlier import saved_args

    with suppress(UserError):  # main says that there is no run
        at = words.index("--trust")
        return [*words[:at], *as_flags(foreign(saved_args(run))), *words[at + 1 :]]
    return words


def usage() -> str:
    rows = [f"  {name:<11} {does}" for name, (_, _, does) in COMMANDS.items()]
    return "\n".join(["usage: turnwise COMMAND ...", "", *rows, "", "Each has its own --help."])


if __name__ == "__main__":
    sys.exit(main())
