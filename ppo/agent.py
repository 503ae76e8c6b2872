"""The PPO update: epochs over shuffled minibatches of turns, each cut into micro-batches.

Every loss is a sum over response tokens divided by ONE denominator per minibatch. So gradients do
not depend on micro-batching, on padding, or on the number of ranks that share a minibatch.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

import torch
from torch import Tensor

from ppo.advantages import whiten
from ppo.kl import k3
from ppo.losses import first_token_weights, policy_loss, sampled_logps, value_loss
from ppo.optimizer import Stepper

GROUPS = ("actor", "critic")  # of parameters, each with its learning rate
FIGURES = ("policy_loss", "value_loss", "entropy", "approx_kl", "clipfrac")


class Agent:
    """Holds the optimizer and makes its steps.

    settings: has lr, critic_lr, lr_schedule, clip, value_clip, first_token_weight, entropy_coef,
        max_grad_norm, ppo_epoch and minibatch, as the flags of the same names, and whiten: whether
        advantages are whitened
    generator: shuffles the turns, in the same way on all ranks
    make_stepper: `Stepper`, or what `ppo.distributed.make_stepper` returns
    policy_loss: takes the arguments of PPO's and returns what that returns
    old_logps: what ratios are taken against, as `sampled_logps`
    terms: of the loss besides PPO's, each (scores, batch, micro_batch) -> its sum over the tokens
    """

    def __init__(
        self, settings, actor_critic, generator: torch.Generator, make_stepper: Callable = Stepper,
        policy_loss: Callable = policy_loss, old_logps: Callable = sampled_logps,
        terms: Sequence = (),
    ):  # fmt: skip
        self.settings, self.actor_critic, self.generator = settings, actor_critic, generator
        self.policy_loss, self.old_logps, self.terms = policy_loss, old_logps, terms
        groups = self._parameter_groups()
        self.base_lrs = [group["lr"] for group in groups]
        # Weight decay would pull the policy towards 0, not towards the reference. A second beta of
        # .999 would average over more steps than many runs have.
        self.optimizer = torch.optim.AdamW(
            groups, betas=(0.9, 0.99), weight_decay=0.0, fused=groups[0]["params"][0].is_cuda
        )
        self.stepper = make_stepper(actor_critic, self.optimizer, settings.max_grad_norm)
        self.ranks = self.stepper.ranks
        self.skipped_steps, self.skipped_rows = 0, []  # the count, and the turns of the last one

    def _parameter_groups(self) -> list[dict]:
        model, settings = self.actor_critic, self.settings
        actor = {"params": model.actor_parameters(), "lr": settings.lr}
        # The critic begins from nothing, so it has a rate of its own, ten times the actor's.
        return [actor, {"params": model.critic_parameters(), "lr": settings.critic_lr}]

    def schedule_lr(self, progress: float) -> None:
        """Set the learning rates for an update; progress: share of the updates already made."""
        self._scale_lr(1 - progress if self.settings.lr_schedule == "linear" else 1.0)

    def _scale_lr(self, factor: float) -> None:
        for group, lr in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = factor * lr

    def begin_warm_up(self, critic_lr: float) -> None:
        """Only the critic learns from here on."""
        actor, critic = self.optimizer.param_groups
        actor["lr"], critic["lr"] = 0.0, critic_lr  # 0: DeepSpeed steps the actor all the same

    def end_warm_up(self) -> None:
        self.skipped_rows = []  # they are turns of the warm-up, which nobody keeps
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

    def plan(self, batch) -> list[list[list[int]]]:
        """Return the minibatches of each epoch; a minibatch is a list of `batch.rows`.

        They are drawn before scoring, because the turns are scored along the first epoch.
        """
        return [self.minibatches(batch, batch.rows) for _ in range(self.settings.ppo_epoch)]

    def minibatches(self, batch, rows: Sequence[int]) -> list[list[int]]:
        """Return the turns `rows` in random order, in chunks of about `minibatch`."""
        mixed = torch.tensor(self.shuffled(batch, rows))
        # Equal chunks: a few turns that are left over would make a step as long as the others.
        count = max(1, round(len(mixed) / self.settings.minibatch))
        return [chunk.tolist() for chunk in mixed.tensor_split(count)]

    def shuffled(self, batch, rows: Sequence[int]) -> list[int]:
        return batch.layout.shuffled(rows, self.settings.minibatch, self.generator)

    def update(self, batch, plan: list[list[list[int]]]) -> dict[str, float | None]:
        """Make one PPO update on a batch whose advantages are known. Returns the ppo/* metrics."""
        advantages = batch.advantages  # (E, N, T)
        if self.settings.whiten:  # so that the scale of rewards does not change the steps
            advantages = whiten(advantages, batch.response_mask)
        sums, norms, ratios = Counter(), [], []
        for rows in chain.from_iterable(plan):
            totals, ratio = self._minibatch(batch, advantages, rows)
            sums.update(totals)  # a Counter adds
            ratios.append(ratio)
            norms.append(self._step(rows, totals["policy_loss"] + totals["value_loss"]))
        tokens = sums.pop("tokens")
        figures = {name: total / tokens for name, total in sums.items()} | {
            # At first the policy is pi_old: a ratio other than 1 betrays a fault in scoring.
            "ratio_first_minibatch": ratios[0],
            "grad_norm": sum(math.hypot(*both) for both in norms) / len(norms),
            "skipped_steps": self.skipped_steps,
            "lr": self.optimizer.param_groups[0]["lr"],
        }
        for name, column in zip(GROUPS, zip(*norms, strict=True), strict=False):
            figures[f"grad_norm_{name}"] = sum(column) / len(column)
        return {f"ppo/{name}": figure for name, figure in figures.items()}

    def fit_critic(self, batch, rows: Sequence[int]) -> float:
        """Train the critic alone on the turns `rows`; returns the mean value loss.

        Actor parameters have no gradient here, so AdamW leaves them as they are, to the bit.
        """
        total, count = 0.0, 0.0
        for chosen in self.minibatches(batch, rows):
            weights = first_token_weights(batch.masks(chosen), self.settings.first_token_weight)
            denominator = weights.sum()
            summed = torch.zeros_like(denominator)
            for micro in batch.micro_batches(chosen):
                values = self.stepper.model(micro, part="critic")
                loss = self._value_loss(batch, micro, values).sum()
                self.stepper.backward(loss / denominator)  # gradients add up to that of one mean
                summed += loss.detach()
            loss = self.ranks.sum(summed).item()  # each rank has seen its share of the rows
            total, count = total + loss, count + denominator.item()
            self._step(chosen, loss)
        return total / count

    def _minibatch(self, batch, advantages: Tensor, rows: Sequence[int]):
        """Accumulate the gradient of a minibatch. Returns sums of its figures, and the ratio that
        is farthest from 1."""
        settings, masks = self.settings, batch.masks(rows)  # (turns, T)
        # Denominators of the whole minibatch: a micro-batch adds its part of one mean.
        n_tokens = masks.sum()
        n_weights = first_token_weights(masks, settings.first_token_weight).sum()
        sums, log_ratios = n_weights.new_zeros(len(FIGURES)), [n_weights.new_zeros(1)]
        for micro in batch.micro_batches(rows):
            # Without a bonus entropies carry no gradient, which saves memory.
            scores = self.stepper.model(micro, entropy_grad=settings.entropy_coef > 0)
            old_logps = self.old_logps(batch, micro, scores.logps)  # (R,), like all that follow
            gains = batch.take(advantages, micro.rows)
            policy, clipped = self.policy_loss(scores.logps, old_logps, gains, settings.clip)
            value = self._value_loss(batch, micro, scores.values)
            loss = policy.sum() / n_tokens + value.sum() / n_weights
            for term in self.terms:
                loss = loss + term(scores, batch, micro) / n_tokens
            if settings.entropy_coef > 0:
                loss = loss - settings.entropy_coef * scores.entropies.sum() / n_tokens
            self.stepper.backward(loss)  # now, so that only one micro-batch's activations exist
            with torch.no_grad():
                kl = k3(old_logps, scores.logps)
                value = value * n_tokens / n_weights  # `update` divides all sums by n_tokens
                figures = (policy, value, scores.entropies, kl, clipped)  # in the order of FIGURES
                sums += torch.stack([figure.sum() for figure in figures])
                log_ratios.append(scores.logps - old_logps)
        log_ratios = torch.cat(log_ratios)  # with a 0, as a rank may have had no turns
        extremes = self.ranks.gather([log_ratios[log_ratios.abs().argmax()].item()])
        ratio = torch.tensor(max(extremes, key=abs)).exp().item()
        sums = dict(zip(FIGURES, self.ranks.sum(sums).tolist(), strict=True))
        return sums | {"tokens": n_tokens.item()}, ratio

    def _value_loss(self, batch, micro_batch, values: Tensor) -> Tensor:
        """Value loss of the response tokens of a micro-batch, times their weights, (R,)."""
        mask = batch.masks(micro_batch.rows)  # (turns, T)
        weights = first_token_weights(mask, self.settings.first_token_weight)[mask]
        old = batch.take(batch.values, micro_batch.rows)
        returns = batch.take(batch.returns, micro_batch.rows)
        return weights * value_loss(values, old, returns, self.settings.value_clip)

    def _step(self, rows: Sequence[int], loss: float) -> list[float]:
        """Clip and step; returns the actor's and the critic's norm. A loss or gradient of `rows`
        that is not finite would spoil the weights for good: that step is skipped and counted."""
        norms, stepped = self.stepper.step(loss)
        if not stepped:
            self.skipped_steps, self.skipped_rows = self.skipped_steps + 1, rows
            print(f"loss {loss}, gradient norms {norms}: optimizer step skipped")
        return norms
