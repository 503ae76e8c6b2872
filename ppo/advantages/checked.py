"""An estimator by its name, which may be a user's: what it returns is checked."""

from collections.abc import Callable

from torch import Tensor

from common.estimator import key_of
from common.plugins import UserError, check_call, defined_at, find
from ppo.advantages import Batch


def checked(name: str, known: dict[str, str]) -> Callable:
    """Return the function of a batch that --advantages names. It returns the advantages and the
    returns, which are None without a critic. UserError: there is no such estimator

    known: as for `common.plugins.find`
    """
    estimator = find("estimator", key_of(name), known)
    check_call(estimator, "batch")  # now: the first call comes after a whole batch
    named = f"{defined_at(estimator)}estimator {name!r}"

    def estimate(batch: Batch) -> tuple[Tensor, Tensor | None]:
        return check(estimator(batch), batch, named)

    return estimate


def check(result, batch: Batch, name: str) -> tuple[Tensor, Tensor | None]:
    """Return what an estimator returned. UserError: it is not finite tensors of (E, N, T), two of
    them or, without a critic, one. A single nan would reach all weights in one step."""
    critic = batch.values is not None
    given = tuple(result) if isinstance(result, tuple | list) else (result,)
    *got, wanted = [
        f"{x.type()} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        for x in (*given, batch.rewards)
    ]
    if got != [wanted] * (1 + critic):
        words = f"advantages, returns: 2 x {wanted}" if critic else f"advantages: {wanted}"
        raise UserError(f"{name} returned {', '.join(got)}, not {words}")
    known = all(x.isfinite().all() for x in (batch.values, batch.rewards) if x is not None)
    if known and not all(x[batch.response_mask].isfinite().all() for x in given):
        raise UserError(f"{name} returned numbers that are not finite (nan or inf)")
    return given if critic else (*given, None)
