"""`--track wandb` also sends a run's metrics to Weights & Biases.

wandb is imported only with this flag. WANDB_MODE, `wandb login` and `wandb offline` decide whether
it works online, offline or not at all.
"""

import sys
from pathlib import Path

from common.masked import masked
from common.plugins import UserError

ID = "wandb-id.txt"  # holds the id of the run at wandb, which a resumed run continues


class Tracker:
    """Sends metrics to wandb, all over the axis "update". wandb's own step would refuse the updates
    that a resumed run repeats."""

    def __init__(self, args, run: Path):
        import wandb

        sys.argv = masked(sys.argv)  # wandb records it, too
        known = (run / ID).read_text(encoding="utf-8").strip() if (run / ID).exists() else None
        try:
            self.run = wandb.init(
                project="turnwise",
                name=run.resolve().name,
                id=known,
                resume="allow",
                config=masked(vars(args)),
                dir=run,
                settings=wandb.Settings(console="off", silent=True),  # it would wrap the output
            )
        except wandb.Error as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"--track wandb: {reason} (WANDB_MODE=offline needs none)") from error
        (run / ID).write_text(f"{self.run.id}\n", encoding="utf-8")
        self.run.define_metric("update")
        self.run.define_metric("*", step_metric="update")

    def log(self, update: int, metrics: dict[str, float]) -> None:
        self.run.log({"update": update} | metrics)


def make_tracker(args, run: Path) -> Tracker | None:
    """Return the tracker of --track; None without one. ValueError: wandb cannot start"""
    return Tracker(args, run) if args.track == "wandb" else None
