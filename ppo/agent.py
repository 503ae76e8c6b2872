"""The PPO update: epochs over shuffled minibatches of turns, each cut into micro-batches.

Every loss is a sum over response tokens divided by ONE denominator per minibatch, so gradients do
not depend on micro-batching or padding. Actor and critic share one optimizer with two learning
rates. `fit_critic` is the critic-only step of the warm-up.
"""

import math

import torch
from torch import Tensor

from ppo.gae import whiten
from ppo.kl import k3
from ppo.losses import explained_variance, first_token_weights, policy_loss, value_loss


class Agent:
    """generator: shuffles the turns; max_grad_norm: of actor and critic together."""

    def __init__(
        self,
        actor_critic,
        lr: float,
        critic_lr: float,
        clip: float,
        value_clip: float | None,
        first_token_weight: float,
        entropy_coef: float,
        max_grad_norm: float,
        ppo_epoch: int,
        minibatch: int,
        generator: torch.Generator,
    ):
        self.actor_critic = actor_critic
        self.optimizer = torch.optim.AdamW(
            [
                {"params": actor_critic.actor_parameters(), "lr": lr},
                {"params": actor_critic.critic_parameters(), "lr": critic_lr},
            ],
            betas=(0.9, 0.99),
            weight_decay=0.0,
        )
        self.base_lrs = (lr, critic_lr)
        self.clip, self.value_clip = clip, value_clip
        self.first_token_weight, self.entropy_coef = first_token_weight, entropy_coef
        self.max_grad_norm = max_grad_norm
        self.ppo_epoch, self.minibatch = ppo_epoch, minibatch
        self.generator = generator
        self.skipped_steps, self.skipped_rows = 0, []

    def scale_lr(self, factor: float) -> None:
        """Set both learning rates to `factor` times their base (the schedule)."""
        for group, lr in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = factor * lr

    def set_critic_lr(self, lr: float) -> None:
        """For the warm-up; `scale_lr` sets it back."""
        self.optimizer.param_groups[1]["lr"] = lr

    def state_dict(self) -> dict:
        return {
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "skipped_steps": self.skipped_steps,
        }

    def load_state_dict(self, state: dict) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.scale_lr(1.0)  # the learning rates of this command line
        self.generator.set_state(state["generator"])
        self.skipped_steps = state["skipped_steps"]

    def update(self, rollouts) -> dict[str, float]:
        """One PPO update on a storage whose advantages are computed. Returns the ppo/* metrics."""
        mask = rollouts.response_mask  # (E, N, T)
        advantages = whiten(rollouts.advantages, mask)
        sums, tokens, norms, first_ratio = {}, 0, [], None
        for _ in range(self.ppo_epoch):
            for rows in self._minibatches(rollouts.e_len * rollouts.n_env):
                totals, ratio = self._minibatch(rollouts, advantages, rows)
                first_ratio = ratio if first_ratio is None else first_ratio
                tokens += totals.pop("tokens")
                norms.append(self._step(rows, totals["policy_loss"] + totals["value_loss"]))
                for name, total in totals.items():
                    sums[name] = sums.get(name, 0.0) + total
        first = mask & (mask.cumsum(-1) == 1)  # the value that each turn starts from
        return {f"ppo/{name}": total / tokens for name, total in sums.items()} | {
            "ppo/ratio_first_minibatch": first_ratio,
            "ppo/grad_norm": sum(norms) / len(norms),
            "ppo/explained_variance": explained_variance(
                rollouts.values[first], rollouts.returns[first]
            ),
            "ppo/value_mean": rollouts.values[first].mean().item(),
            "ppo/return_mean": rollouts.returns[first].mean().item(),
            "ppo/advantage_std": rollouts.advantages[mask].std().item(),
            "ppo/skipped_steps": self.skipped_steps,
            "ppo/lr": self.optimizer.param_groups[0]["lr"],
        }

    def fit_critic(self, rollouts, rows: list[int]) -> float:
        """Train only the critic on `rows`, minibatch by minibatch; returns the mean value loss.

        Actor parameters have no gradient here, so AdamW leaves them as they are, to the bit.
        """
        masks = rollouts.response_mask.flatten(0, 1)  # (E N, T)
        weights = first_token_weights(masks, self.first_token_weight)
        total, count = 0.0, 0.0
        for places in self._minibatches(len(rows)):
            chosen = [rows[place] for place in places]
            denominator = weights[chosen].sum()
            for batch, mask in rollouts.batches(chosen):
                values = self.actor_critic.values(batch.ids, batch.response_mask)
                loss = self._value_loss(rollouts, values, batch.rows, mask, weights).sum()
                (loss / denominator).backward()
                total += loss.item()
            count += denominator.item()
            self._step(chosen, total)
        return total / count

    def _minibatch(self, rollouts, advantages: Tensor, rows: list[int]):
        """Accumulate the gradient of one minibatch. Returns summed figures and the probability
        ratio that lies farthest from 1."""
        masks = rollouts.response_mask.flatten(0, 1)  # (E N, T)
        weights = first_token_weights(masks, self.first_token_weight)
        n_tokens, n_weights = masks[rows].sum(), weights[rows].sum()
        sums = dict(policy_loss=0.0, value_loss=0.0, entropy=0.0, approx_kl=0.0, clipfrac=0.0)
        farthest = 1.0
        for batch, mask in rollouts.batches(rows):
            scores = self.actor_critic(batch.ids, batch.response_mask, self.entropy_coef > 0)
            old_logps = rollouts.take(rollouts.logps, batch.rows, mask)
            gains = rollouts.take(advantages, batch.rows, mask)
            policy, clipped = policy_loss(scores.logps, old_logps, gains, self.clip)
            value = self._value_loss(rollouts, scores.values, batch.rows, mask, weights)
            loss = policy.sum() / n_tokens + value.sum() / n_weights
            if self.entropy_coef > 0:
                loss = loss - self.entropy_coef * scores.entropies.sum() / n_tokens
            loss.backward()
            with torch.no_grad():
                log_ratio = scores.logps - old_logps
                sums["policy_loss"] += policy.sum().item()
                sums["value_loss"] += (value.sum() * n_tokens / n_weights).item()
                sums["entropy"] += scores.entropies.sum().item()
                sums["approx_kl"] += k3(old_logps, scores.logps).sum().item()
                sums["clipfrac"] += clipped.sum().item()
                extreme = log_ratio[log_ratio.abs().argmax()].exp().item()
                farthest = max(farthest, extreme, key=lambda ratio: abs(ratio - 1))
        return sums | {"tokens": n_tokens.item()}, farthest

    def _value_loss(self, rollouts, values: Tensor, rows: Tensor, mask: Tensor, weights: Tensor):
        """Weighted value loss of the response tokens of `rows`, (R,)."""
        old = rollouts.take(rollouts.values, rows, mask)
        returns = rollouts.take(rollouts.returns, rows, mask)
        return weights[rows][mask] * value_loss(values, old, returns, self.value_clip)

    def _minibatches(self, n_turns: int) -> list[list[int]]:
        """Turns shuffled across time and environments, in chunks of `minibatch`."""
        order = torch.randperm(n_turns, generator=self.generator)
        return [rows.tolist() for rows in order.split(self.minibatch)]

    def _step(self, rows: list[int], loss: float) -> float:
        """Clip and step; a non-finite loss or gradient of `rows` is skipped and counted. Returns
        the gradient's norm."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.max_grad_norm).item()
        if math.isfinite(norm) and math.isfinite(loss):
            self.optimizer.step()
        else:
            self.skipped_steps, self.skipped_rows = self.skipped_steps + 1, rows
            print(f"loss {loss}, gradient norm {norm}: optimizer step skipped")
        self.optimizer.zero_grad(set_to_none=True)
        return norm
