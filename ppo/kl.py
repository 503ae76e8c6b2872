"""How far the policy may move from its start: KL estimators and the coefficient's controller.

The estimate of each sampled token is taken off its reward (`RolloutStorage.penalise_kl`). k1 is
unbiased there; k2 and k3 are for comparison (J. Schulman, "Approximating KL divergence").
"""

from torch import Tensor


def k1(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """log pi - log pi_0: unbiased, may be negative. Any shape."""
    return logps - ref_logps


def k2(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """(log pi - log pi_0)^2 / 2: biased, low variance."""
    return 0.5 * (logps - ref_logps).square()


def k3(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """pi_0 / pi - 1 - log(pi_0 / pi): unbiased and never negative."""
    log_ratio = ref_logps - logps
    return log_ratio.exp() - 1 - log_ratio


ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3}


class KLPenalty:
    """beta times the estimate. With a target, beta follows it (Ziegler et al. 2019, section 2.2):

    beta <- beta (1 + clip(KL / target - 1, -.2, .2) turns / horizon)
    """

    def __init__(self, coef: float, estimator: str, target: float | None, horizon: int):
        self.coef = coef
        self.estimate = ESTIMATORS[estimator]
        self.target = target
        self.horizon = horizon

    def update(self, kl: float, n_turns: int) -> None:
        """kl: mean estimate per response token of the batch just collected."""
        if self.target is not None:
            error = min(max(kl / self.target - 1, -0.2), 0.2)
            self.coef *= 1 + error * n_turns / self.horizon

    def state_dict(self) -> dict[str, float]:
        return {"coef": self.coef}

    def load_state_dict(self, state: dict[str, float]) -> None:
        if self.target is not None:  # else this command line's
            self.coef = state["coef"]
