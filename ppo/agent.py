"""The PPO update: epochs over shuffled minibatches of turns, each cut into micro-batches.

Every loss is a sum over response tokens divided by ONE denominator per minibatch. So gradients do
not depend on micro-batching, on padding, or on the number of ranks that share a minibatch. Actor
and critic share one optimizer with two learning rates. `fit_critic` is the critic-only step of the
warm-up.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from common.ranks import ALONE, Ranks
from ppo.advantages import whiten
from ppo.distributed import make_stepper
from ppo.kl import k3
from ppo.losses import explained_variance, first_token_weights, policy_loss, value_loss
from ppo.optimizer import Stepper

PIECES = 32  # a minibatch has at least so many pieces of chains: turns of one pull in one direction
FIGURES = ("policy_loss", "value_loss", "entropy", "approx_kl", "clipfrac")


def make_agent(args, actor_critic, ranks: Ranks, kl=None) -> "Agent":
    flags = "lr critic_lr lr_schedule clip value_clip first_token_weight entropy_coef max_grad_norm"
    return Agent(
        actor_critic,
        **{name: getattr(args, name) for name in f"{flags} ppo_epoch minibatch".split()},
        generator=torch.Generator().manual_seed(args.seed),
        ratio_cap=args.tis_cap or float("inf"),
        ranks=ranks,
        make_stepper=make_stepper(args.zero_stage, args.offload_optimizer),
        whiten=args.whiten == "on",
        kl=kl,
    )


class Agent:
    """Holds the optimizer and makes its steps. Most arguments are the flags of the same names.

    generator: shuffles the turns, in the same way on all ranks; ratio_cap: --tis-cap
    make_stepper: `Stepper`, or a class that shards the optimizer over the ranks
    whiten: whether advantages are made white; kl: a `KLPenalty`, which may be a term of the loss
    """

    def __init__(
        self, actor_critic, lr: float, critic_lr: float, clip: float, value_clip: float,
        first_token_weight: float, entropy_coef: float, max_grad_norm: float, ppo_epoch: int,
        minibatch: int, generator: torch.Generator, lr_schedule: str = "constant",
        ratio_cap: float = float("inf"), ranks: Ranks = ALONE, make_stepper=Stepper,
        whiten: bool = True, kl=None,
    ):  # fmt: skip
        self.actor_critic = actor_critic
        actor, critic = actor_critic.actor_parameters(), actor_critic.critic_parameters()
        groups = [dict(params=actor, lr=lr), dict(params=critic, lr=critic_lr)]
        groups = groups if critic else groups[:1]
        # A second beta of .999 would average over more steps than many runs have.
        options = dict(betas=(0.9, 0.99), weight_decay=0.0, fused=actor[0].is_cuda)
        self.optimizer = torch.optim.AdamW(groups, **options)
        self.stepper = make_stepper(actor_critic, self.optimizer, max_grad_norm, ranks)
        self.ranks, self.lr_schedule = ranks, lr_schedule
        self.base_lrs = [group["lr"] for group in groups]
        self.clip, self.value_clip, self.ratio_cap = clip, value_clip, ratio_cap
        self.first_token_weight, self.entropy_coef = first_token_weight, entropy_coef
        self.ppo_epoch, self.minibatch, self.whiten = ppo_epoch, minibatch, whiten
        self.kl = kl if kl is not None and kl.in_loss else None
        self.generator = generator
        self.skipped_steps, self.skipped_rows = 0, []

    def schedule_lr(self, progress: float) -> None:
        """Set the learning rates for an update; progress: share of the updates already made."""
        self._scale_lr(1 - progress if self.lr_schedule == "linear" else 1.0)

    def _scale_lr(self, factor: float) -> None:
        for group, lr in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = factor * lr

    def begin_warm_up(self, critic_lr: float) -> None:
        """Only the critic learns from here on."""
        actor, critic = self.optimizer.param_groups
        actor["lr"], critic["lr"] = 0.0, critic_lr  # 0: DeepSpeed steps the actor all the same

    def end_warm_up(self) -> None:
        self.skipped_rows = []  # they are of the warm-up's turns, which nobody keeps
        self.stepper.reset_actor()
        self._scale_lr(1.0)

    def state_dict(self) -> dict:
        return {
            "stepper": self.stepper.state_dict(),
            "generator": self.generator.get_state(),  # a resumed run shuffles as it would have
            "skipped_steps": self.skipped_steps,
        }

    def load_state_dict(self, state: dict) -> None:
        self.stepper.load_state_dict(state["stepper"], state.get("folder"))
        self._scale_lr(1.0)  # this command line's learning rates, not the saved ones
        self.generator.set_state(state["generator"])
        self.skipped_steps = state["skipped_steps"]

    def update(self, rollouts) -> dict[str, float]:
        """One PPO update on a storage whose advantages are computed. Returns the ppo/* metrics."""
        mask = rollouts.response_mask  # (E, N, T)
        # White, so that the scale of the rewards does not change the policy's steps.
        advantages = whiten(rollouts.advantages, mask) if self.whiten else rollouts.advantages
        sums, tokens, norms, first_ratio = {}, 0, [], None
        for epoch in range(self.ppo_epoch):
            # The first epoch takes the minibatches along which the turns were scored.
            for rows in self.shuffled(rollouts.chains()) if epoch else rollouts.first_epoch:
                totals, ratio = self._minibatch(rollouts, advantages, rows)
                # At first the policy is pi_old: a ratio other than 1 betrays a fault in scoring.
                first_ratio = ratio if first_ratio is None else first_ratio
                tokens += totals.pop("tokens")
                norms.append(self._step(rows, totals["policy_loss"] + totals["value_loss"]))
                for name, total in totals.items():
                    sums[name] = sums.get(name, 0.0) + total
        return {f"ppo/{name}": total / tokens for name, total in sums.items()} | {
            "ppo/ratio_first_minibatch": first_ratio,
            "ppo/grad_norm": sum(math.hypot(*both) for both in norms) / len(norms),
            "ppo/grad_norm_actor": sum(actor for actor, *_ in norms) / len(norms),
            **_critic_figures(rollouts, [critic for _, *critics in norms for critic in critics]),
            "ppo/advantage_std": rollouts.advantages[mask].std().item(),
            "ppo/skipped_steps": self.skipped_steps,
            "ppo/lr": self.optimizer.param_groups[0]["lr"],
            "ppo/merged": rollouts.merged(rollouts.first_epoch),
        }

    def fit_critic(self, rollouts, rows: list[int]) -> float:
        """Train the critic alone on `rows`; returns the mean value loss.

        Actor parameters have no gradient here, so AdamW leaves them as they are, to the bit.
        """
        total, count = 0.0, 0.0
        for chosen in self.shuffled(rollouts.chains(rows)):
            masks = rollouts.response_mask.flatten(0, 1)[chosen]  # (B, T): row t * N + n is a turn
            denominator = first_token_weights(masks, self.first_token_weight).sum()
            summed = torch.zeros_like(denominator)
            for batch, mask in rollouts.batches(chosen):
                values = self.stepper.model(batch, critic_only=True)
                loss = self._value_loss(rollouts, values, batch.rows, mask).sum()
                self.stepper.backward(loss / denominator)  # gradients add up to that of one mean
                summed += loss.detach()
            loss = self.ranks.sum(summed).item()  # each rank has seen its share of the rows
            total, count = total + loss, count + denominator.item()
            self._step(chosen, loss)
        return total / count

    def _minibatch(self, rollouts, advantages: Tensor, rows: list[int]):
        """Accumulate the gradient of a minibatch; returns summed figures and the farthest ratio."""
        masks = rollouts.response_mask.flatten(0, 1)[rows]  # (B, T)
        # Denominators of the whole minibatch: a micro-batch adds its part of one mean.
        n_tokens, n_weights = masks.sum(), first_token_weights(masks, self.first_token_weight).sum()
        sums, log_ratios = n_weights.new_zeros(len(FIGURES)), [n_weights.new_zeros(1)]
        for batch, mask in rollouts.batches(rows):
            scores = self.stepper.model(batch, entropy_grad=self.entropy_coef > 0)
            old_logps = rollouts.take(rollouts.logps, batch.rows, mask)
            gains = rollouts.take(advantages, batch.rows, mask)  # (R,), like all that follow
            policy, clipped = policy_loss(scores.logps, old_logps, gains, self.clip, self.ratio_cap)
            value = self._value_loss(rollouts, scores.values, batch.rows, mask)
            loss = policy.sum() / n_tokens + value.sum() / n_weights
            if self.kl and self.kl.coef > 0:  # with 0 there may be no reference
                ref_logps = rollouts.take(rollouts.ref_logps, batch.rows, mask)
                penalty = self.kl.estimate(scores.logps, ref_logps)
                loss = loss + self.kl.coef * penalty.sum() / n_tokens
            if self.entropy_coef > 0:  # else entropies carry no gradient, which saves memory
                loss = loss - self.entropy_coef * scores.entropies.sum() / n_tokens
            self.stepper.backward(loss)  # now, so that only one micro-batch's activations exist
            with torch.no_grad():
                kl = k3(old_logps, scores.logps)
                value = value * n_tokens / n_weights  # `update` divides all sums by n_tokens
                figures = (policy, value, scores.entropies, kl, clipped)  # in the order of FIGURES
                sums += torch.stack([figure.sum() for figure in figures])
                log_ratios.append(scores.logps - old_logps)
        log_ratios = torch.cat(log_ratios)
        extremes = self.ranks.gather([log_ratios[log_ratios.abs().argmax()].item()])
        ratio = torch.tensor(max(extremes, key=abs)).exp().item()
        sums = dict(zip(FIGURES, self.ranks.sum(sums).tolist(), strict=True))
        return sums | {"tokens": n_tokens.item()}, ratio

    def _value_loss(self, rollouts, values: Tensor | None, rows: Tensor, mask: Tensor) -> Tensor:
        """Value loss of the response tokens of `rows`, times their weights, (R,)."""
        if values is None:  # there is no critic
            return torch.zeros(int(mask.sum()), device=mask.device)
        weights = first_token_weights(mask, self.first_token_weight)[mask]
        old = rollouts.take(rollouts.values, rows, mask)
        returns = rollouts.take(rollouts.returns, rows, mask)
        return weights * value_loss(values, old, returns, self.value_clip)

    def shuffled(self, chains: Sequence[Sequence[int]]) -> list[list[int]]:
        """The minibatches of an epoch: the turns of `mixed`, in chunks of about `minibatch`."""
        rows = torch.tensor(self.mixed(chains))
        # Equal chunks: of a few turns that are left over, the last step would be as long as others.
        chunks = rows.tensor_split(max(1, round(len(rows) / self.minibatch)))
        return [chunk.tolist() for chunk in chunks]

    def mixed(self, chains: Sequence[Sequence[int]]) -> list[int]:
        """Return all turns in random order, where pieces of chains stay together: in a minibatch,
        turns of a chain share a row of the model."""
        # Neighbouring turns of an episode are alike: whole chains in a minibatch would make its
        # gradient noisy. In short pieces each turn still shares its row with others.
        size = max(1, self.minibatch // PIECES)
        pieces = [c[i : i + size] for c in chains for i in range(0, len(c), size)]
        order = torch.randperm(len(pieces), generator=self.generator)
        rows = [row for place in order.tolist() for row in pieces[place]]
        if len(rows) == len(pieces):
            return rows
        # Turns of long pieces would often come early. From a random place on, as on a ring, every
        # turn is at every place with the same probability.
        start = int(torch.randint(len(rows), (), generator=self.generator))
        return rows[start:] + rows[:start]

    def _step(self, rows: list[int], loss: float) -> list[float]:
        """Clip and step; returns the actor's and the critic's norm. A loss or gradient of `rows`
        that is not finite would spoil the weights for good: that step is skipped and counted."""
        norms, stepped = self.stepper.step(loss)
        if not stepped:
            self.skipped_steps, self.skipped_rows = self.skipped_steps + 1, rows
            print(f"loss {loss}, gradient norms {norms}: optimizer step skipped")
        return norms


def _critic_figures(rollouts, norms: list[float]) -> dict[str, float | None]:
    """What the update says of the critic, None where there is none. norms: of its gradients"""
    names = "value_loss grad_norm_critic explained_variance value_mean return_mean"
    if not norms:
        return dict.fromkeys([f"ppo/{name}" for name in names.split()])
    turns = rollouts.response_mask.any(-1)  # (E, N)
    # values and returns of the first token of each turn
    values, returns = rollouts.values[..., 0][turns], rollouts.returns[..., 0][turns]
    return {
        "ppo/grad_norm_critic": sum(norms) / len(norms),
        "ppo/explained_variance": explained_variance(values, returns),
        "ppo/value_mean": values.mean().item(),
        "ppo/return_mean": returns.mean().item(),
    }
