"""What a process of main.py needs before it runs: quiet signals, an output that can end, threads.

main.py imports this first, so it imports nothing that takes long. From then on Ctrl-C ends the
program at once; `set_up` lets it raise KeyboardInterrupt, and later `run.stop` listens to it.
"""

import atexit
import gc
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from common.cli import command, is_main

FEW_BYTES = 10**8  # of weights: about 50 million parameters in bfloat16
THREADS = "OMP_NUM_THREADS"
# New objects before Python searches for garbage, and how many such searches make one of the next
# generation. With its own 700, 10, 10 a turn takes a sixth longer.
GARBAGE = (50_000, 20, 10)
LEAVING = 10.0  # seconds that the process may take to end
# What torch tells of the machine, on stderr: nobody can do anything about it.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
logging.getLogger("torch._library.triton").setLevel(logging.ERROR)


def end_at_once(number: int, frame) -> None:
    os.write(2, f"{command('main.py')}: interrupted\n".encode())
    os._exit(130)  # an exception inside of an import may be caught, or crash a library


if is_main() and (
    signal.getsignal(signal.SIGINT) is signal.default_int_handler  # it is not if nohup ignores it
):
    signal.signal(signal.SIGINT, end_at_once)


def set_up() -> None:
    """Let Ctrl-C raise KeyboardInterrupt, modules beside the user be found, and neither a character
    nor a lost reader of the output be an error. Let garbage be searched for less often."""
    gc.set_threshold(*GARBAGE)
    if signal.getsignal(signal.SIGINT) is end_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.stdout is None:  # it was closed before the start
        sys.stdout = open(os.devnull, "w", errors="replace")
    sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may lack a name's characters
    sys.path.append(os.getcwd())  # `--env-name my_env:MyEnv-v0` finds my_env.py beside the user
    atexit.register(output_is_lost)


def output_is_lost() -> bool:
    """Return whether the reader of the standard output has left (`| head -1`).

    If so, what is still to be printed goes nowhere, so that it raises no further errors.
    """
    poll = select.poll()
    poll.register(1, 0)  # errors are reported without being asked for
    lost = any(events & select.POLLERR for _, events in poll.poll(0))
    if lost:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return lost


def end_with(program: Callable[[], int]) -> None:
    """Run `program` and end the process with the exit code that it returns.

    At its end Python waits for all threads of pools, even for those that hang for ever in a tool of
    a user's program. Everything is saved by then, so the wait has a limit.
    """
    code = 1  # of a bug, whose traceback Python prints
    try:
        code = program()
    finally:
        late = threading.Timer(LEAVING, os._exit, [code])
        late.daemon = True
        late.start()
        with suppress(OSError):
            sys.stdout.flush()
    sys.exit(code)


def choose_threads(model: str) -> None:
    """Give this process and its workers one thread, if `model` is the directory of a small model.

    A second thread saves little in matrices so small. Where other processes compute as well, the
    threads of each wait for one another, and the run takes several times as long. OMP_NUM_THREADS,
    if it is set, is the choice of the user or of the launcher.
    """
    size = 0
    with suppress(OSError, ValueError):  # whatever is wrong is told when the model is loaded
        size = sum(path.stat().st_size for path in Path(model).glob("*.safetensors"))
    if THREADS in os.environ or not 0 < size < FEW_BYTES:
        return
    import torch

    os.environ[THREADS] = "1"  # for workers, and for libraries that are loaded later
    torch.set_num_threads(1)
