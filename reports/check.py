"""Checks a run directory: checksums, the model, logs and leftovers, and what a resume would use.

    python -m reports.check RUN

It reads and changes nothing else: no module of the run is imported, no address is contacted and no
link is followed. The exit code is 1 if something is damaged.
"""

import argparse
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from common.masked import masked
from common.plugins import UserError
from common.run_file import links_in, open_file, read_text
from envs.trust import as_flags, foreign
from reports.program import Program
from run.earlier import copies
from run.files import leftovers
from run.lock import LOCK
from run.logs import LOGS
from run.saved import checkpoints, damaged, model_update, number_of

DAMAGED, NOTE = "damaged: ", "note: "


def main(argv: list[str] | None = None) -> int:
    program = Program(prog="reports.check", description=__doc__.splitlines()[0])
    program.add_argument("run", type=Path, metavar="RUN", help="run directory")
    return program.run(check_run, argv)


def check_run(args: argparse.Namespace) -> int:
    """Print what was found, and return the exit code."""
    run = args.run
    if not ((run / "args.json").exists() or checkpoints(run) or (run / "lock").exists()):
        raise UserError(f"{run} is not the directory of a run")
    settings, lines = {}, []
    lines += of_settings(run, settings)
    faults = {path: fault_of(path) for path in checkpoints(run)}  # reads gigabytes: once
    lines += of_checkpoints(faults)
    lines += of_model(run)
    whole = [path for path, fault in faults.items() if fault is None]
    lines += of_logs(run, whole[-1] if whole else None)
    lines += of_leftovers(run)
    lines += of_resume(settings)
    for line in lines:
        print(line)
    bad = sum(line.startswith(DAMAGED) for line in lines)
    print(f"{bad} damaged" if bad else "nothing is damaged")
    return int(bad > 0)


def of_settings(run: Path, settings: dict) -> Iterator[str]:
    """Check args.json, and read the settings from it or from a copy."""
    for path in (run / "args.json", *copies(run)):
        try:
            settings.update(json.loads(read_text(path))["args"])
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            lost = isinstance(error, FileNotFoundError)
            yield f"{DAMAGED}{path} {'is gone' if lost else 'does not describe a run'}"


def of_checkpoints(faults: dict[Path, str | None]) -> Iterator[str]:
    """Describe the checkpoints. faults: what is wrong with each, see `fault_of`"""
    for path, fault in faults.items():
        yield f"{DAMAGED}{path.name}: {fault}" if fault else f"{path.name} is whole"
    if not faults:
        yield f"{NOTE}there is no checkpoint yet"


def fault_of(checkpoint: Path) -> str | None:
    """Return what is wrong with a checkpoint; None if it is whole."""
    links = links_in(checkpoint)
    return f"{links[0].name} is a link" if links else damaged(checkpoint)


def of_model(run: Path) -> Iterator[str]:
    """Check that the files of model/ have the lengths that their headers say, and its update."""
    folder, last = run / "model", checkpoints(run)[-1:]
    if not folder.exists():
        if last:
            yield f"{DAMAGED}model/ is gone; a resume writes it again"
        return
    if links := links_in(folder):
        yield f"{NOTE}{links[0]} is a link, which is not followed"
        return
    for path in sorted(folder.rglob("*.safetensors")):
        try:
            with safe_open(path, "pt"):
                pass
        except (OSError, SafetensorError) as error:
            yield f"{DAMAGED}model/{path.relative_to(folder)}: {error}"
    made = model_update(run)
    yield f"model/ has had {made} updates"
    if last and made != number_of(last[0]):
        yield f"{NOTE}{last[0].name} is newer; a resume writes model/ again"


def of_logs(run: Path, checkpoint: Path | None) -> Iterator[str]:
    """Check the part of each log that a resume keeps: what was there at the checkpoint."""
    sizes = {}
    if checkpoint:
        state = torch.load(checkpoint / "state.pt", "cpu", weights_only=True, mmap=True)
        sizes = state["logs"]
    for name in sorted({f"{name}.jsonl" for name in LOGS} | sizes.keys()):
        try:
            with open_file(run / name, "rb") as log:
                text = log.read()
        except FileNotFoundError:
            text = b""
        size = sizes.get(name, len(text))
        if len(text) < size:
            yield f"{DAMAGED}{name} has {len(text)} of the {size} bytes that the checkpoint counted"
        bad = [number for number, line in enumerate(text[:size].splitlines(), 1) if is_bad(line)]
        if bad:
            yield f"{DAMAGED}{name}: line {bad[0]} cannot be read ({len(bad)} in all)"
        elif text:
            yield f"{name} has {len(text[:size].splitlines())} lines"
        if len(text) > size:
            later = len(text) - size
            yield f"{NOTE}a resume cuts the last {later} bytes of {name}, which are newer"


def is_bad(line: bytes) -> bool:
    try:
        return bool(line.strip()) and not isinstance(json.loads(line)["update"], int)
    except (ValueError, KeyError, TypeError):
        return True


def of_leftovers(run: Path) -> Iterator[str]:
    if user := in_use_by(run):
        yield f"{NOTE}it may be in use by {user}"
        return
    for path in leftovers(run):
        yield f"{NOTE}{path.relative_to(run)} is left by a kill; a resume cleans up"


def in_use_by(run: Path) -> str:
    """Return the process that the lock names; "" if it has ended. The lock itself is not touched:
    a run that begins at this moment would find it taken."""
    try:
        text = read_text(run / LOCK, errors="replace").strip()
        _, pid, _, host, *_ = text.split()
    except (OSError, ValueError):
        return ""
    ended = host == socket.gethostname() and not Path("/proc", pid).exists()
    return "" if ended else text


def of_resume(settings: dict) -> Iterator[str]:
    """Say what a resume would import or contact."""
    found = foreign(settings)
    upstream = found.pop("upstream", None)
    if found:
        yield f"{NOTE}a resume imports {masked(' '.join(as_flags(found)))}"
    if settings.get("zero_stage"):
        yield f"{NOTE}a resume lets DeepSpeed unpickle its checkpoint, which can run any code"
    contacts = [masked(upstream)] if upstream else []
    model = str(settings.get("model", ""))
    if model and not Path(model).exists():
        contacts.append(f"the Hugging Face hub, for {model}")
    contacts += ["Weights & Biases"] * (settings.get("track") == "wandb")
    if contacts:
        yield f"{NOTE}a resume contacts {', '.join(contacts)}"


if __name__ == "__main__":
    sys.exit(main())
