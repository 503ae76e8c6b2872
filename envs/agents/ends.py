"""How an agent's program ended: with a result, or with an exception."""

from common.plugins import UserError
from envs.contract import is_finite
from envs.errors import BrokenContract, fault_of
from envs.outcomes import caused_by_policy

RESULT_KEYS = {"reward", "success", "metrics"}  # of the dict that a program may return


def result_of(name: str, end: tuple) -> tuple[float, bool, dict]:
    """Return the final reward, success and metrics, or raise the program's exception.

    name: of the program; end: (its result or its exception,)
    """
    [result] = end
    if isinstance(result, BaseException):
        raise result
    given = result if isinstance(result, dict) else {"reward": result}
    reward, metrics = given.get("reward"), given.get("metrics", {})
    reward = 0.0 if reward is None else reward  # all rewards may have come from `reward(...)`
    numbers = isinstance(metrics, dict) and all(map(is_finite, metrics.values()))
    if not (is_finite(reward) and numbers and given.keys() <= RESULT_KEYS):
        wanted = "a finite number, or a dict with reward, success and metrics of such numbers"
        raise BrokenContract(f"{name} returned {result!r:.80}; it must return {wanted}")
    return float(reward), bool(given.get("success", reward > 0)), metrics


def failure_of(end: tuple, faults: tuple[type[BaseException], ...]) -> str:
    """Return one line about an exception that the policy caused; "" if there is none.

    end: (the program's result or its exception,); faults: as `caused_by_policy`
    """
    [error] = end
    failed = isinstance(error, BaseException) and caused_by_policy(error, faults)
    return fault_of(error).error if failed else ""


def fault_classes(function, name: str) -> tuple[type[BaseException], ...]:
    """Return the attribute `faults` of a program. UserError: it holds no classes of exceptions"""
    given = getattr(function, "faults", ())
    classes = given if isinstance(given, tuple) else (given,)
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in classes):
        raise UserError(f"{name}.faults is {given!r:.80}; it must be a tuple of exception classes")
    return classes
