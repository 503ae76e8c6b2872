"""`--track wandb`: the figures of a run go to Weights & Biases, too.

wandb is imported only if it is asked for. Whether it works online, offline or not at all is its own
setting: WANDB_MODE, `wandb login` and `wandb offline` are obeyed.
"""

from pathlib import Path

from common.plugins import UserError

ID = "wandb-id.txt"  # of the run there: a resumed run goes on in it


class Tracker:
    """Sends figures to wandb. Updates are the axis of every figure, so none is refused as old."""

    def __init__(self, args, run: Path):
        import wandb

        known = (run / ID).read_text(encoding="utf-8").strip() if (run / ID).exists() else None
        try:
            self.run = wandb.init(
                project="turnwise", name=run.resolve().name, id=known, resume="allow",
                config=vars(args), dir=run,
                settings=wandb.Settings(console="off", silent=True),  # it would wrap the output
            )  # fmt: skip
        except wandb.Error as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"--track wandb: {reason} (WANDB_MODE=offline needs none)") from error
        (run / ID).write_text(f"{self.run.id}\n", encoding="utf-8")
        self.run.define_metric("update")
        self.run.define_metric("*", step_metric="update")

    def log(self, update: int, metrics: dict[str, float]) -> None:
        self.run.log({"update": update} | metrics)


def make_tracker(args, run: Path) -> Tracker | None:
    """Return what --track names. ValueError: wandb cannot start"""
    return Tracker(args, run) if args.track == "wandb" else None
