"""What a run says when memory runs out: the moment, the table of the estimate, and what helps."""

import sys
from contextlib import contextmanager, suppress
from traceback import clear_frames

from common.errors import OutOfMemory, RunError, lacks_memory
from common.plugins import UserError
from run.estimate.advice import fits, here, needs, remedies, table
from run.estimate.shape import load_shape

PHASES = {  # phase of a run -> when it is
    "collect": "while turns are collected",
    "warmup": "in the critic's warm-up",
    "eval": "in an evaluation",
    "score": "while a batch is scored",
    "update": "in the update",
    "push": "while the weights are pushed to the engine",
}
START = "while the run starts"


@contextmanager
def explained(args, moment: str):
    """`with explained(args, "in the update"):` if memory runs out inside, the table of the estimate
    goes to the standard error, and a RunError says in one line when that was and what helps."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        ours = isinstance(error, RunError) and not isinstance(error, OutOfMemory)
        if ours or not lacks_memory(error):
            raise
        clear_frames(error.__traceback__)  # of what it has computed: the run is still to be saved
        reason = ". ".join(" ".join(str(error).split()).split(". ")[:3])
        line = f"out of memory {moment} ({reason or type(error).__name__:.300})"
        with suppress(UserError):  # a model of another kind has no estimate
            line = f"{line}. {estimated(args)}"
        raise RunError(line) from error


def estimated(args) -> str:
    """Print the table of the estimate, and return its total and the changes that save most.

    UserError: there is no estimate for this model
    """
    shape = load_shape(args.model)
    setting, available = here(args)
    print(table(shape, setting, available), file=sys.stderr)
    need = needs(shape, setting)
    if fits(need, available):  # it was too low, and does not know what fits
        available = (0, available[1])
    total = f"The estimate is {need[0] / 1e9:.1f} GB of the device per rank"
    return f"{total}. {remedies(shape, setting, available, 0)}"
