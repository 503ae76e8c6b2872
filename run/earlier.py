"""What the command line says about an earlier run: which one goes on, what flags may change, and
which model is taken from it.

Only the standard library is imported here, so that `python main.py --help` answers soon.
"""

import argparse
import json
import os
from pathlib import Path

from common.cache import PACKAGES, cached
from common.estimator import has_critic
from common.flags import spelled
from common.masked import masked
from common.plugins import UserError
from common.run_file import read_text


def folder(text: str) -> Path:
    """The type of --run-dir and --resume: a directory, or a path where nothing is yet."""
    path = Path(text)
    try:
        if path.exists() and not path.is_dir():
            raise argparse.ArgumentTypeError(f"{path} is a file; name a directory")
    except OSError as error:  # a name too long, or a place without permission
        raise argparse.ArgumentTypeError(f"{path}: {error.strerror}") from error
    try:
        text.encode()
    except UnicodeError as error:  # TensorBoard and safetensors could not open its files
        line = f"{text!a} has characters that this locale cannot read; set PYTHONUTF8=1"
        raise argparse.ArgumentTypeError(line) from error
    return path


def resumed_run(typed: dict) -> Path | None:
    """Return the directory of the run that goes on, if one does. `typed` has the given flags."""
    run, resume = typed.get("run_dir"), typed.get("resume")
    auto = resume == Path("auto")
    if resume and run and not auto:
        raise UserError("--resume goes on in its own directory; leave --run-dir out")
    if auto and not run:
        raise UserError("--resume auto needs --run-dir, the directory to start or go on in")
    if auto:
        return run if args_file(run) else None
    return resume


def args_file(run: Path) -> Path | None:
    """Return args.json or, if that is lost, its newest copy in a checkpoint; None if there is no
    run."""
    own = run / "args.json"
    return own if own.is_file() else next(iter(copies(run)), None)


def copies(run: Path) -> list[Path]:
    """Return the copies of args.json in the checkpoints, the newest one first."""
    found = {}
    for path in run.glob("checkpoints/update-*/args.json"):
        number = path.parent.name.removeprefix("update-")
        if number.isdecimal():  # not one that is damaged, or half deleted
            found[int(number)] = path
    return [found[number] for number in sorted(found, reverse=True)]


def saved_args(run: Path) -> dict:
    path = args_file(run)
    if path is None:
        raise UserError(f"--resume {run}: no run there (args.json is missing)")
    try:
        about = json.loads(read_text(path))
        saved = about["args"] | {"model": model_begun(about)}
    except OSError as error:
        raise UserError(f"--resume {run}: {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        line = f"--resume {run}: its args.json does not describe a run"
        remedy = f"; if you delete it, {copies(run)[0]} takes its place" if copies(run) else ""
        raise UserError(line + remedy) from error
    return saved | {"run_dir": run, "resume": None}


def model_begun(about: dict) -> str:
    """Return the model that a run began with: its directory, or its name on the hub. A relative
    name is one of the directory that the run began in, if it is still there.

    about: the content of args.json. KeyError, TypeError: it does not describe a run
    """
    named = about["args"]["model"]
    begun = Path(about.get("cwd", "."), named)
    moved = os.path.realpath(begun) != os.path.realpath(named)
    return str(begun) if moved and begun.is_dir() else named


# Flags that are about this process and not about the resumed run
FREE = ("run_dir", "resume", "eval_only", "env_workers", "track")
# Flags with which a checkpoint was made. A resumed run cannot change them.
FIXED = (
    "env_name", "seed", "n_env", "model", "critic_layers", "group_size", "memory", "memory_length",
)  # fmt: skip
OF_THE_WARM_UP = ("w_epoch", "w_iter", "w_fraction", "w_lr")  # which is over at a checkpoint


def changes(args: argparse.Namespace, saved: dict) -> dict[str, str]:
    """Return name -> "--flag value (was value)" of the settings that differ from a saved run's."""
    changed = {}
    for name, value in vars(args).items():
        if name in FREE or name not in saved or str(value) == str(saved[name]):
            continue
        if name == "model" and os.path.realpath(value) == os.path.realpath(saved[name]):
            continue  # the same directory by another name
        if masked(str(value)) == str(saved[name]):
            continue  # args.json keeps no password
        was = f"(was {shortened(saved[name])})"
        changed[name] = f"{spelled(name)} {shortened(value)} {was}"
    return changed


def shortened(value) -> str:
    text = masked(str(value))
    return text if len(text) < 80 else f"{text[:76]} ..."


def refuse_changes(args: argparse.Namespace, saved: dict) -> None:
    """Raise a UserError if flags are typed that a resumed run cannot change.

    `saved` has its settings, and the defaults of flags that are newer than it.
    """
    changed = changes(args, saved)
    critic = "advantages" in changed and has_critic(saved["advantages"]) == args.update.no_critic
    fixed = {*FIXED}
    if saved and copies(saved["run_dir"]):  # else it begins again
        fixed |= {*OF_THE_WARM_UP} | ({"kl_coef"} if args.kl_target else set())  # it has adapted
    if critic or changed.keys() & fixed:
        words = ", ".join(changed.values())
        raise UserError(f"--resume {args.resume} with {words}: start a new run for that")


def model_path(text: str) -> str:
    """The type of --model: a directory, a hub name or a model that `models.fetch` has fetched. The
    directory RUN stands for RUN/model."""
    if text in PACKAGES and not os.path.isdir(text):
        text = str(fetched(text))
    is_file, join = os.path.isfile, os.path.join  # not Path.is_file: it raises for too long a name
    if is_file(join(text, "adapter_config.json")):
        raise argparse.ArgumentTypeError(
            f"{text} is an adapter without its base; take the merged model, which is RUN/model of "
            "the run that made it, or else what peft's merge_and_unload and save_pretrained write"
        )
    if is_file(join(text, "config.json")) or not is_file(join(text, "args.json")):
        return text
    if not is_file(join(text, "model", "config.json")):
        raise argparse.ArgumentTypeError(f"the run {text} has saved no model yet")
    return join(text, "model")


def fetched(name: str) -> Path:
    folder = cached(name)
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(
            f"{name} is not in {folder.parent}; fetch it once with: python -m models.fetch {name}"
        )
    return folder


def hidden_size(model: str) -> int | None:
    """How wide a model is; None if it is not in a directory here, or its config is unreadable."""
    try:
        width = json.loads(Path(model, "config.json").read_text(encoding="utf-8"))["hidden_size"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return width if isinstance(width, int) else None
