"""KL to the initial policy: estimates per token, and the coefficient of the penalty.

`Batch.penalise_kl` subtracts the estimate of each sampled token from its reward. k1 is unbiased
there. In the loss its gradient would be zero in expectation, so k3 stands there
(J. Schulman, "Approximating KL divergence").
"""

from torch import Tensor

HORIZON = 10_000  # turns over which the coefficient adapts by at most a fifth


def k1(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """log pi - log pi_0: unbiased, and may be negative. Any shape."""
    return logps - ref_logps  # its mean under pi is the KL, by definition


def k2(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """(log pi - log pi_0)^2 / 2: biased, with a low variance. Any shape."""
    return 0.5 * (logps - ref_logps).square()


def k3(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """pi_0 / pi - 1 - log(pi_0 / pi): unbiased and never negative. Any shape."""
    log_ratio = ref_logps - logps
    return log_ratio.exp() - 1 - log_ratio  # k1 and a control variate: pi_0 / pi - 1 has mean 0


KL_ESTIMATES = {"k1": k1, "k2": k2, "k3": k3}


class KLPenalty:
    """The coefficient beta and the estimate that it multiplies.

    With a target beta adapts:
    beta <- beta (1 + clip(KL / target - 1, -.2, .2) turns / horizon)  (Ziegler et al. 2019, 2.2)
    """

    def __init__(self, coef: float, estimator: str, target: float | None):
        self.coef, self.estimate, self.target = coef, KL_ESTIMATES[estimator], target

    @property
    def reward_coef(self) -> float:
        """The coefficient with which the estimate is subtracted from the rewards."""
        return self.coef  # `ppo.terms` has a penalty that is part of the loss instead

    def update(self, kl: float, n_turns: int) -> None:
        """Move beta after a batch of `n_turns` turns; kl: its mean per response token."""
        if self.target is not None:
            # Clipped, so that one batch with an extreme KL does not throw beta off.
            error = min(max(kl / self.target - 1, -0.2), 0.2)
            # A batch longer than the horizon counts as one horizon, so that beta stays positive.
            self.coef *= 1 + error * min(1.0, n_turns / HORIZON)

    def state_dict(self) -> dict[str, float]:
        return {"coef": self.coef}  # what adapts; estimate and target are the command line's

    def load_state_dict(self, state: dict[str, float]) -> None:
        if self.target is not None:  # a constant coefficient is the one of this command line
            self.coef = state["coef"]
