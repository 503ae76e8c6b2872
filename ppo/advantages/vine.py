"""VinePPO (Kazemnejad et al. 2024) with turns for steps: values are means over continuations."""

from torch import Tensor

from ppo.advantages import Batch


def vine(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the advantages and the returns of every response token, both (E, N, T), 0 elsewhere.

        A_t = r_t + gamma V(s_{t+1}) - V(s_t)

    V(s) is the mean discounted return of the K continuations from s (`ppo.vine`), and 0 behind the
    end of an episode. r_t sums the rewards of the turn's tokens, all of which get A_t.
    """
    returns = batch.turn_rewards + batch.gamma_step * batch.next_values
    return batch.spread(returns - batch.values[..., 0]), batch.spread(returns)
