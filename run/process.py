"""Sets up the process of main.py: signals, standard output, garbage collection, threads.

main.py imports this first, so this imports nothing slow. From then on Ctrl-C ends the program at
once. `set_up` lets it raise KeyboardInterrupt; later, `run.stop` handles it.
"""

import atexit
import gc
import logging
import os
import resource
import select
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from common.cli import command, discard_output, is_main

SMALL_MODEL = 10**8  # bytes of weights: about 50 million parameters in bfloat16
THREADS = "OMP_NUM_THREADS"
# Thresholds of Python's garbage collector for its three generations. With the defaults (700, 10,
# 10) a turn takes a sixth longer.
GC_THRESHOLDS = (50_000, 20, 10)
EXIT_SECONDS = 10.0  # that the process may take to end
# torch's warnings about the machine are of no use here.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
logging.getLogger("torch._library.triton").setLevel(logging.ERROR)


def end_at_once(number: int, frame) -> None:
    os.write(2, f"{command('main.py')}: interrupted\n".encode())
    os._exit(130)  # an exception during an import may be caught, or crash a library


if is_main() and (
    signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not if it is ignored
):
    signal.signal(signal.SIGINT, end_at_once)


def set_up() -> None:
    """Set up the process; main.py calls it before anything else.

    Ctrl-C raises KeyboardInterrupt, and modules in the working directory can be imported. Printing
    never fails, whatever the characters, and even if the reader of the output is gone. The garbage
    collector runs less often.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    raise_file_limit()
    if signal.getsignal(signal.SIGINT) is end_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.stdout is None:  # started with a closed standard output
        sys.stdout = open(os.devnull, "w", errors="replace")
    sys.stdout.reconfigure(errors="backslashreplace")  # an encoding may lack some characters
    sys.path.append(os.getcwd())  # `--env-name my_env:MyEnv-v0` finds my_env.py there
    atexit.register(output_is_lost)


def raise_file_limit() -> None:
    """Allow this process and its workers as many open files as the system does: agents need some
    each, and the usual soft limit of 1,024 is little. `run.checks` knows the hard one."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(ValueError, OSError):  # macOS has a lower limit that it does not tell
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def output_is_lost() -> bool:
    """Return whether the reader of the standard output is gone (`| head -1`).

    If so, further output is discarded, so that it raises no errors.
    """
    poll = select.poll()
    poll.register(1, 0)  # errors are always reported
    lost = any(events & select.POLLERR for _, events in poll.poll(0))
    if lost:
        discard_output()
    return lost


def end_with(program: Callable[[], int]) -> None:
    """Run `program` and end the process with the exit code that it returns.

    At exit Python waits for the threads of all thread pools, even if a user's tool hangs in one for
    ever. Everything is saved by then, so we limit the wait.
    """
    code = 1  # the exit code after an uncaught exception
    try:
        code = program()
    finally:
        timer = threading.Timer(EXIT_SECONDS, os._exit, [code])
        timer.daemon = True
        timer.start()
        with suppress(OSError):
            sys.stdout.flush()
    sys.exit(code)


def choose_threads(model: str) -> None:
    """Use one thread in this process and its workers, if `model` is a directory of a small model.

    With small matrices a second thread saves little. If other processes compute at the same time,
    the threads wait for one another, and the run takes several times as long. OMP_NUM_THREADS, if
    set by the user or the launcher, is respected.
    """
    size = 0
    with suppress(OSError, ValueError):  # a bad path is reported when the model is loaded
        size = sum(path.stat().st_size for path in Path(model).glob("*.safetensors"))
    if THREADS in os.environ or not 0 < size < SMALL_MODEL:
        return
    import torch

    os.environ[THREADS] = "1"  # for workers, and for libraries imported later
    torch.set_num_threads(1)
