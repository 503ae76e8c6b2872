"""Push the model of a run to the Hugging Face hub, with its model card.

    python -m reports.push RUN ORG/NAME [--private]

It uploads the folder RUN/model, which AutoModelForCausalLM and vLLM can load. Prompts, logs and
checkpoints are not uploaded.
"""

import argparse
import os
import sys
from pathlib import Path

from common.plugins import UserError
from common.run_file import links_in
from reports.program import Program

LOGIN = "log in with `hf auth login`, or set HF_TOKEN"


def main(argv: list[str] | None = None) -> int:
    program = Program(prog="reports.push", description=__doc__.splitlines()[0])
    add = program.add_argument
    add("run", type=Path, metavar="RUN", help="run directory")
    add("repo", metavar="ORG/NAME", help="repository on the hub; created if missing")
    add("--private", action="store_true", help="create the repository as private")
    add("--trust", action="store_true", help="also push what links in RUN/model point to")
    return program.run(push_model, argv)


def push_model(args: argparse.Namespace) -> None:
    """Upload the model and print its address. UserError: there is no model, or the upload fails."""
    folder = args.run / "model"
    if not (folder / "config.json").is_file():
        raise UserError(f"{args.run} is not the directory of a run with a saved model")
    if not args.trust and (links := links_in(folder)):
        line = f"{links[0]} is a link to {os.readlink(links[0])}; it is not pushed"
        raise UserError(f"{line}, unless you type --trust")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "0" if sys.stderr.isatty() else "1")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import LocalTokenNotFoundError

    hub = HfApi()
    try:
        hub.create_repo(args.repo, private=args.private or None, exist_ok=True)
        commit = hub.upload_folder(
            repo_id=args.repo, folder_path=folder, commit_message=commit_message(folder)
        )
    except LocalTokenNotFoundError as error:
        raise UserError(f"not logged in to the hub: {LOGIN}") from error
    except Exception as error:  # the client raises exceptions of several libraries
        status = getattr(getattr(error, "response", None), "status_code", None)
        reason = " ".join(str(error).split())[:300]
        hint = f"; {LOGIN}" if status in (401, 403) else ""
        raise UserError(f"cannot push to {args.repo}: {reason}{hint}") from error
    print(f"{folder} was pushed to {commit.commit_url}")


def commit_message(folder: Path) -> str:
    """Return the commit message, with the number of updates if it is known."""
    path = folder / "update.txt"
    updates = path.read_text(encoding="utf-8").strip() if path.exists() else ""
    return f"The model after {updates} updates" if updates else "The model"


if __name__ == "__main__":
    sys.exit(main())
