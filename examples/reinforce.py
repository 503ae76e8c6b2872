"""A custom estimator: REINFORCE with the mean of the batch as its baseline.

python main.py --advantages examples.reinforce:reinforce --group-size 1
"""

from ppo.advantages.groups import discounted_returns


def reinforce(batch):
    """A_t = G_t - mean of all G, where G_t is the discounted sum of rewards from turn t on."""
    returns, mask = discounted_returns(batch), batch.turn_mask  # both (E, N)
    return batch.spread(returns - returns[mask].mean())  # (E, N, T)


reinforce.critic = False  # there are no values, and advantages are all that it returns
reinforce.whiten = True  # without a critic they would keep their scale
