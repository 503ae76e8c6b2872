"""What an estimator returned, checked: it may be a user's."""

from collections.abc import Callable

from torch import Tensor

from common.plugins import UserError
from ppo.advantages import Batch


def checked(estimator: Callable, batch: Batch, name: str) -> tuple[Tensor, Tensor | None]:
    """Return the advantages and the returns, which are None without a critic. UserError: the
    estimator does not return finite tensors of (E, N, T), two of them or, without a critic, one."""
    result, critic = estimator(batch), batch.values is not None
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
