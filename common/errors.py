"""Errors that end a run. `run.exit` turns them into one line and an exit code."""

from contextlib import contextmanager
from textwrap import shorten

from common.plugins import UserError

REASON = 300  # most characters of what a library says


class RunError(RuntimeError):
    """The run cannot go on. The message gives the reason; everything saved before is intact."""


class OtherRankFailed(RunError):
    """Another rank cannot go on. That rank reports the reason."""


class RanksApart(RunError):
    """This rank has failed where others cannot hear it: nothing may be gathered any more. They end
    when this process has (`run.dead_ranks`)."""


class OutOfMemory(RunError):
    """The device or the host has too little memory. `run.out_of_memory` adds what helps."""


SIGNS = (  # in messages of torch, CUDA, the C library and vLLM
    "out of memory",
    "can't allocate memory",
    "Free memory on device",
    "Available memory on node",
    "No available memory",
    "KV cache is needed",
)


def lacks_memory(error: Exception) -> bool:
    """Return whether a library says that memory ran out. Each has errors of its own for it."""
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in SIGNS)


def reason_of(error: BaseException) -> str:
    """Return the message of an error in one short line, or its name if it has no message."""
    return shorten(str(error) or repr(error), REASON)


def typed_reason_of(error: BaseException) -> str:
    """Return the type of an error and its message in one short line."""
    return shorten(f"{type(error).__name__}: {error}".removesuffix(": "), REASON)


@contextmanager
def as_run_error(what: str, remedy: str):
    """`with as_run_error("vLLM fails", "try ..."):` what a library raises inside, of whatever type,
    becomes a RunError of one line. Checks of this project, and a lack of memory, stay as they are.
    """
    try:
        yield
    except (RunError, UserError):
        raise
    except Exception as error:
        if lacks_memory(error):
            raise
        raise RunError(f"{what} ({typed_reason_of(error)}); {remedy}") from error
