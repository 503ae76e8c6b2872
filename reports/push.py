"""Push the model of a run to the Hugging Face hub, with its model card.

    python -m reports.push RUN ORG/NAME [--private]

What is uploaded is the folder RUN/model, as AutoModelForCausalLM and vLLM load it. Nothing else of
the run is: no prompts, no logs, no checkpoints.
"""

import argparse
import os
import sys
from pathlib import Path

from common.plugins import UserError
from reports.program import Program

LOGIN = "log in with `hf auth login`, or set HF_TOKEN"


def main(argv: list[str] | None = None) -> int:
    program = Program(prog="reports.push", description=__doc__.splitlines()[0])
    add = program.add_argument
    add("run", type=Path, metavar="RUN", help="directory of a run")
    add("repo", metavar="ORG/NAME", help="name on the hub; it is made if it is not there")
    add("--private", action="store_true", help="make it private, if it is new")
    return program.run(push, argv)


def push(args: argparse.Namespace) -> None:
    """ValueError: there is no model to push, or the hub does not take it"""
    folder = args.run / "model"
    if not (folder / "config.json").is_file():
        raise UserError(f"{args.run} is not the directory of a run that has saved a model")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "0" if sys.stderr.isatty() else "1")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import LocalTokenNotFoundError

    hub = HfApi()
    try:
        hub.create_repo(args.repo, private=args.private or None, exist_ok=True)
        done = hub.upload_folder(
            repo_id=args.repo, folder_path=folder, commit_message=message(folder)
        )
    except LocalTokenNotFoundError as error:
        raise UserError(f"nobody is logged in to the hub: {LOGIN}") from error
    except Exception as error:  # the client raises what several libraries define
        status = getattr(getattr(error, "response", None), "status_code", None)
        reason = " ".join(str(error).split())[:300]
        hint = f"; {LOGIN}" if status in (401, 403) else ""
        raise UserError(f"cannot push to {args.repo}: {reason}{hint}") from error
    print(f"{folder} is at {done.commit_url}")


def message(folder: Path) -> str:
    """Return the message of the commit, which names the number of updates."""
    path = folder / "update.txt"
    made = path.read_text(encoding="utf-8").strip() if path.exists() else ""
    return f"The model after {made} updates" if made else "The model"


if __name__ == "__main__":
    sys.exit(main())
