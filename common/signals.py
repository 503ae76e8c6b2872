"""The signals that ask a run to save itself and end.

A terminal or a scheduler may send them to all processes of a run: SIGINT is Ctrl-C, SIGHUP a closed
terminal. SIGUSR1 and SIGUSR2 are what clusters send some time before they kill a job, as Slurm does
with `--signal=USR1@300`.
"""

import signal
from contextlib import contextmanager

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


@contextmanager
def blocked():
    """Let them wait. A process that is started meanwhile begins with them blocked."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
