"""The ways in which an environment fails, and the line that describes a failure."""

import functools
import traceback
from collections.abc import Callable

from common.plugins import UserError, location_of


class BrokenContract(UserError):
    """An environment's code violates the contract. The message says where and how."""


class EnvError(UserError):
    """The run cannot go on: environments fail too often, or cannot be made at all."""


class Fault(Exception):
    """An environment raised an exception, gave a wrong answer, hung, or killed its worker.

    error: one line
    breaks_contract: whether the environment violated the contract, as it may in every episode
    not_made: whether it could not be made because of a user's mistake, which the line describes
    """

    def __init__(self, error: str, traceback: str = "", breaks_contract=False, not_made=False):
        super().__init__(error, traceback, breaks_contract, not_made)
        self.error, self.traceback = error, traceback
        self.breaks_contract, self.not_made = breaks_contract, not_made


def fault_of(error: BaseException, making: bool = False) -> Fault:
    """Return the Fault for an exception, with the user's file and line.

    making: whether the environment was being made; then the message of a ValueError is complete
    """
    if isinstance(error, Fault):  # some environments raise Faults, for example `envs.agents.agent`
        return error
    breaks_contract = isinstance(error, BrokenContract)
    not_made = making and isinstance(error, ValueError)
    message = f"{location_of(error) or _last_line(error)}{error!r}"
    if breaks_contract or not_made:
        message = str(error)
    trace = "".join(traceback.format_exception(error))
    return Fault(message[:1000], trace, breaks_contract, not_made)


def _last_line(error: BaseException) -> str:
    """Return "file:line: " of the line that raised an error."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}: "


def name_of(make: Callable) -> str:
    """Return the name of an environment for messages. make: usually partial(make_env, name)"""
    if isinstance(make, functools.partial):
        named = make.args and isinstance(make.args[0], str)
        return make.args[0] if named else name_of(make.func)
    return getattr(make, "__name__", repr(make))
